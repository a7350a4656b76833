"""Finds the order of the table rows in a checkpoint.

With 'mod', a legacy TPU of H hosts saved tables host by host. Host i = 0, 1, ... had the rows of
the ids i, i + H, i + 2H, ... The first of these sources that exists decides:

1. The record that a conversion has left in the checkpoint.
2. The graph in the `.meta` file. The graph of a legacy TPU program has the configuration of the
   embedding hardware, with the strategy and the number of hosts. A graph of this package is
   recognized by its helper variable, and by how it loads the hardware.
3. The slices in which a table was saved, one for each host with rows of the table. They tell the
   number of hosts, but not the strategy.

Source: `_create_partitioned_variables`, `_load_operation` and `create_dummy_table_variables` of
tensorflow/python/tpu/tpu_embedding.py and tpu_embedding_gradient.py, TensorFlow 2.15.1.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping

import tensorflow as tf
from google.protobuf import message

from estimator_emb.checkpoints.files.checkpoint_reader import CheckpointReader
from estimator_emb.checkpoints.reading import saved_variables
from estimator_emb.checkpoints.reading.saved_variables import RECORD
from estimator_emb.compat.internals.protos import TPUEmbeddingConfiguration
from estimator_emb.engine.tables.helper_variable import HELPER_VARIABLE
from estimator_emb.engine.tables.partition import Partition

_READS = {"ReadVariableOp", "Identity", "VariableV2", "VarHandleOp", "Variable"}


@dataclasses.dataclass(frozen=True)
class SavedGraph:
    """Facts from the graph beside a checkpoint. An unknown fact is None.

    `order` is 'ids' or 'mod', and `why` is the evidence. `tables` are the variables that the graph
    loads into the embedding hardware. It `is_other` if the graph loads nothing there.
    """

    order: str | None = None
    hosts: int | None = None
    why: str = ""
    tables: tuple[str, ...] = ()
    is_other: bool = False


def saved_graph(path: str) -> SavedGraph:
    """Reads the graph beside a checkpoint. All facts are unknown without a readable graph."""
    file = f"{path}.meta"
    if not tf.io.gfile.exists(file):
        return SavedGraph()
    try:
        with tf.io.gfile.GFile(file, "rb") as opened:
            graph = tf.compat.v1.MetaGraphDef.FromString(opened.read()).graph_def
    except (message.DecodeError, tf.errors.OpError):
        return SavedGraph()
    nodes = {node.name: node for node in graph.node}
    for node in graph.node:
        if node.op == "VarHandleOp" and node.name.rpartition("/")[2] == HELPER_VARIABLE:
            return SavedGraph("ids", None, f"{file!r} is a graph of this package")
    loads = [
        node
        for node in graph.node
        if re.fullmatch(r"LoadTPUEmbedding\w+Parameters(GradAccumDebug)?", node.op)
    ]
    configurations = [node.attr["config"].s for node in loads] + [
        node.attr["embedding_config"].s
        for node in graph.node
        if node.op == "ConfigureDistributedTPU"
    ]
    read = [TPUEmbeddingConfiguration.FromString(config) for config in configurations]
    known = [config for config in read if config.table_descriptor]
    if not known:
        return SavedGraph(is_other=True)
    variables, direct = set(), True
    for node in loads:
        source = nodes.get(_bare(node.input[0]) if node.input else "")
        while source is not None and source.op in ("ReadVariableOp", "Identity") and source.input:
            source = nodes.get(_bare(source.input[0]))
        if source is None or source.op not in _READS:
            direct = False
        else:
            variables.add(re.sub(r"/part_\d+$", "", source.name))
    tables = tuple(sorted(name for name in variables if not name.startswith("dummy_")))
    hosts = known[0].num_hosts or None
    if known[0].sharding_strategy == TPUEmbeddingConfiguration.DIV_DEFAULT:
        return SavedGraph("ids", hosts, f"{file!r} says partition_strategy='div'", tables)
    if not direct:  # Each host's rows are gathered from all rows, which are in id order.
        return SavedGraph("ids", hosts, f"{file!r} is a graph of this package", tables)
    why = f"{file!r} says partition_strategy='mod' over {hosts} hosts"
    return SavedGraph("mod", hosts, why, tables)


def _bare(name: str) -> str:
    return name.removeprefix("^").partition(":")[0]


def hosts_of_slices(values: CheckpointReader, tables: Iterable[str]) -> dict[str, int]:
    """Returns table -> number of hosts, for tables saved in the slices of a TPU's hosts.

    A table with a slice for each row is left out: more hosts would make the same slices.
    """
    found = {}
    for table in tables:
        parts = values.parts(table)
        rows = values.shapes[table][0]
        if parts is None or rows <= len(parts):
            continue
        if [part.rows for part in parts] == Partition(rows, len(parts)).sizes:
            found[table] = len(parts)
    return found


def record(values: CheckpointReader) -> dict[str, int]:
    """Returns table or slot -> number of hosts of its 'mod' order, or 1 for id order."""
    if RECORD not in values.shapes:
        return {}
    try:
        read = json.loads(values.whole(RECORD))
        hosts = dict(read["hosts"])
        if read["format"] != 1 or not all(
            isinstance(count, int) and count >= 1 for count in hosts.values()
        ):
            raise ValueError
    except (ValueError, TypeError, KeyError):
        raise ValueError(
            f"Variable {RECORD} of checkpoint {values.path!r}, which says how rows are ordered, is "
            "not one that this version of estimator_emb can read."
        ) from None
    return hosts


def contents_of_record(hosts: Mapping[str, int]) -> bytes:
    """Returns the value of the variable that `record` reads."""
    return json.dumps({"format": 1, "hosts": dict(sorted(hosts.items()))}).encode()


def graph_of(values: CheckpointReader) -> SavedGraph:
    """Reads the graph beside an open checkpoint, like `saved_graph`."""
    return saved_graph(values.path)


def known(values: CheckpointReader) -> dict[str, int]:
    """Returns table -> number of hosts, like `record`, from the record or the saved graph."""
    graph = values.once(graph_of)
    found = record(values)
    if not found and graph.order == "ids":
        return dict.fromkeys(values.shapes, 1)
    if not found and graph.order == "mod" and graph.hosts:
        listed = values.once(saved_variables.listed)
        found = {one.name: graph.hosts if one.name in graph.tables else 1 for one in listed}
    return found


def in_words(hosts: int | None) -> str:
    """Describes the 'mod' order over `hosts` hosts in words, or id order if `hosts` is 1."""
    return "the order of the ids" if hosts == 1 else f"the order of 'mod' over {hosts} hosts"


def undivided(values: CheckpointReader, table: str) -> bool:
    """Returns whether a table is in id order: saved in a single part, without legacy helpers."""
    return not values.once(saved_variables.has_helpers) and len(values.parts(table) or ()) == 1


def described(values: CheckpointReader) -> str:
    """Says in words in which order the rows of the tables are, as far as the checkpoint tells."""
    orders, graph = values.once(known), values.once(graph_of)
    listed = values.once(saved_variables.listed)
    tables = saved_variables.tables(listed, [*orders, *graph.tables])
    if not tables:
        return "no variable is known to be an embedding table"
    hosts = {orders[name] for name in tables if name in orders}
    if not hosts and (graph.is_other or all(undivided(values, name) for name in tables)):
        hosts = {1}
    if not hosts:
        return "the order of the rows, 'div' or 'mod', is not known"
    some = " in some tables" if len(hosts) > 1 else ""
    return f"rows in {in_words(max(hosts))}{some}"
