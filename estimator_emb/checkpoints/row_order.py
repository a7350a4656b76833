# SPDX-License-Identifier: Apache-2.0
"""Finds out in which order a checkpoint has the rows of its tables.

Under 'mod', a legacy TPU of H hosts saved the rows of the ids i, i + H, i + 2H, ... of host i = 0,
1, ... one host after the other. What tells of it, in the order in which it is believed:

1. the record that a conversion has left in the checkpoint;
2. the graph that was saved beside it, in its `.meta` file: a legacy TPU program has there the
   configuration of the embedding hardware, with the strategy and the number of hosts; a program of
   this package is known by its helper variable, and by how it loads the hardware;
3. the slices in which a table was saved, one for each host that had rows of it. They tell the
   number of hosts, and not the strategy.

Source: `_create_partitioned_variables`, `_load_operation` and `create_dummy_table_variables` of
tensorflow/python/tpu/tpu_embedding.py and tpu_embedding_gradient.py, TensorFlow 2.15.1.
"""

import dataclasses
import re
from collections.abc import Iterable

import tensorflow as tf
from google.protobuf import message

from estimator_emb.checkpoints.values import Values
from estimator_emb.compat.internals.protos import TPUEmbeddingConfiguration
from estimator_emb.step.helper_variable import HELPER_VARIABLE
from estimator_emb.tables.partition import Partition

_READS = {"ReadVariableOp", "Identity", "VariableV2", "VarHandleOp", "Variable"}


@dataclasses.dataclass(frozen=True)
class SavedGraph:
    """What the graph beside a checkpoint says.

    Attributes:
      order: 'ids' or 'mod'; None if it does not say.
      hosts: number of TPU hosts over which it divides tables; None if it does not say.
      why: what in it says so, for messages.
      tables: names of variables that it loads into the embedding hardware, as checkpoints call
        them.
    """

    order: str | None = None
    hosts: int | None = None
    why: str = ""
    tables: tuple[str, ...] = ()


def saved_graph(path: str) -> SavedGraph:
    """Returns what the graph beside a checkpoint says; nothing where there is none."""
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
    read = [_configuration(config) for config in configurations if config]
    known = [config for config in read if config is not None and config.table_descriptor]
    if not known:
        return SavedGraph()
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
    if not direct:  # Each host's rows are put together from those of all, which are in order.
        return SavedGraph("ids", hosts, f"{file!r} is a graph of this package", tables)
    why = f"{file!r} says partition_strategy='mod' over {hosts} hosts"
    return SavedGraph("mod", hosts, why, tables)


def _configuration(serialized: bytes) -> TPUEmbeddingConfiguration | None:
    try:
        return TPUEmbeddingConfiguration.FromString(serialized)
    except message.DecodeError:
        return None


def _bare(name: str) -> str:
    return name.removeprefix("^").partition(":")[0]


def hosts_of_slices(values: Values, tables: Iterable[str]) -> dict[str, int]:
    """Returns table -> number of hosts that the slices tell in which it was saved.

    Not in it is a table of which they do not tell: it has a slice for each row, as under any
    larger number of hosts, or its slices are not those of a TPU, because another program has
    written the checkpoint since.
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
