"""Writes and reads checkpoints of `tf.tpu.experimental.embedding.TPUEmbedding`.

`tf.train.Checkpoint(embedding=TPUEmbedding(...))` saves such a checkpoint. It holds the values and
a graph of the saved objects. This module writes both without these objects. It writes the values in
pieces, so a table may be larger than memory.

A table is a single tensor in id order, as `TPUEmbedding` saves it from any number of hosts. The
slots hold the same values as in our checkpoints, unscaled.

Source: trackable_object_graph.proto, `escape_local_name` of
tensorflow/python/trackable/trackable_utils.py, `TPUEmbedding` and `TPUEmbeddingForServing` of
tensorflow/python/tpu/tpu_embedding_v2.py and tpu_embedding_for_serving.py, TF 2.15.1 and 2.21.0.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.files.checkpoint_reader import CheckpointReader
from estimator_emb.checkpoints.files.writer import Writer
from estimator_emb.checkpoints.formats.exporting import TableFormat
from estimator_emb.checkpoints.reading import saved_variables
from estimator_emb.checkpoints.reading.saved_tables import SavedTable
from estimator_emb.compat.internals.protos import trackable_object_graph_pb2
from estimator_emb.optimizers import OptimizationParameters, tf2_class
from estimator_emb.reporting.text_columns import aligned

WEIGHTS = "parameters"
"""TensorFlow's name for a table's weights among the table's slots."""

FILE = "ckpt-1"
"""Name of the written checkpoint. `tf.train.Checkpoint.save` gives it to its first checkpoint."""

Keys = dict[str, dict[str, str]]
"""Table -> slot or `WEIGHTS` -> name of the tensor in a checkpoint."""

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = ".ATTRIBUTES/VARIABLE_VALUE"
STEP = f"step/{_VALUE}"
"""Name of the `step` in a checkpoint that `tf.train.Checkpoint(step=...)` saves."""
_LAYOUTS = f"_sparse_core_table_layouts/{_VALUE}"


Written = tuple[str, SavedTable, type[OptimizationParameters] | None]
"""A table to write: its name in TF2, the table, and the TF2 class of its slots or None."""


def suffixes(optimizer: type[OptimizationParameters] | None) -> dict[str, str]:
    """Returns slot, or `WEIGHTS` -> suffix of its variable's name after the table's name."""
    slots = optimizer.slots if optimizer else ()
    return {WEIGHTS: "", **{slot.name: slot.suffix for slot in slots}}


def write(prefix: str, tables: Sequence[Written], step: int | None) -> Keys:
    """Writes a checkpoint that `TPUEmbedding` restores, alone or as the attribute `embedding`."""
    for _, table, _ in tables:
        if table.dtype == np.float64:
            raise ValueError(
                f"export: table {table.name!r} is float64, and the tables of TPUEmbedding are "
                "float32."
            )
    graph, keys = _object_graph(tables, step)
    with Writer(prefix) as out:
        out.add(_GRAPH, tf.string, np.array(graph, object))
        out.add(f"save_counter/{_VALUE}", tf.int64, np.array(1, np.int64))
        if step is not None:
            out.add(STEP, tf.int64, np.array(step, np.int64))
        for name, table, optimizer in tables:
            for slot, suffix in suffixes(optimizer).items():
                pieces = (piece.astype(np.float32) for piece in table.pieces(table.name + suffix))
                out.add_rows(keys[name][slot], tf.float32, table.shape, pieces)
        out.finish()
    return keys


def moved(written: Written, keys: Keys) -> dict[str, str]:
    """Returns variable of a table -> its name in the checkpoint that `write` wrote."""
    name, table, optimizer = written
    return {table.name + suffix: keys[name][slot] for slot, suffix in suffixes(optimizer).items()}


def left_out(written: Written) -> list[str]:
    """Returns the names of a table's slots that `write` does not write."""
    _, table, optimizer = written
    kept = {table.name + suffix for suffix in suffixes(optimizer).values()}
    return [variable for variable in table.variables if variable not in kept]


def _object_graph(tables: Sequence[Written], step: int | None) -> tuple[bytes, Keys]:
    """Returns the object graph, made without variables, and the tensors' names."""
    graph = trackable_object_graph_pb2.TrackableObjectGraph()

    def add(parent: Any, name: str, *path: str) -> Any:
        reference = parent.children.add(node_id=len(graph.nodes), local_name=name)
        node = graph.nodes.add()
        node.has_checkpoint_values.value = True
        if path:
            escaped = (one.replace(".", "..").replace("/", ".S") for one in path)
            key = "/".join([*escaped, _VALUE])
            node.attributes.add(name="VARIABLE_VALUE", full_name=name, checkpoint_key=key)
        return reference

    root = graph.nodes.add()
    root.has_checkpoint_values.value = True
    layer = graph.nodes[add(root, "embedding").node_id]
    counters = ["save_counter"] if step is None else ["step", "save_counter"]
    for counter in counters:
        add(root, counter, counter)
    by_table = graph.nodes[add(layer, "_variables").node_id]
    keys: Keys = {}
    for table, _, optimizer in tables:
        slots = graph.nodes[add(by_table, table).node_id]
        for slot in suffixes(optimizer):
            name = table if slot == WEIGHTS else f"{table}/{slot}"
            place = add(layer, name, "embedding", name).node_id
            slots.children.add(node_id=place, local_name=slot)
            keys.setdefault(table, {})[slot] = graph.nodes[place].attributes[0].checkpoint_key
    return graph.SerializeToString(deterministic=True), keys


def saved_tables(values: CheckpointReader) -> Keys:
    """Returns the tables of a saved TPUEmbedding. Raises ValueError for any other checkpoint."""
    if _GRAPH not in values.shapes:
        raise ValueError(
            f"{values.path!r} is no checkpoint of tf.train.Checkpoint: it holds no graph of "
            "objects."
        )
    for name in values.shapes:
        if name.endswith(_LAYOUTS) and values.whole(name):
            raise ValueError(
                f"{values.path!r} is a checkpoint of TPUEmbeddingV2, whose rows are in the order "
                "of the SparseCore. Restore it with tf.tpu.experimental.embedding."
                "TPUEmbeddingForServing, save that, and give its checkpoint."
            )
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(values.whole(_GRAPH))
    children = [{one.local_name: one.node_id for one in node.children} for node in graph.nodes]
    found: Keys = {}
    for of_object in {each["_variables"] for each in children if "_variables" in each}:
        for table, of_table in children[of_object].items():
            slots = {
                slot: attribute.checkpoint_key
                for slot, place in sorted(
                    children[of_table].items(), key=lambda child: child[0] != WEIGHTS
                )
                for attribute in graph.nodes[place].attributes
                if attribute.name == "VARIABLE_VALUE"
            }
            if WEIGHTS not in slots:
                continue
            if table in found:
                raise ValueError(f"{values.path!r} has more than one table called {table!r}.")
            found[table] = slots
    if not found:
        raise ValueError(f"{values.path!r} has no tables of TPUEmbedding.")
    return found


def shown(key: str) -> str:
    """Returns a tensor's key in a checkpoint as a path of attributes, such as `embedding/t`."""
    path = key.removesuffix(f"/{_VALUE}")
    return re.sub(r"\.(S|\.)", lambda escaped: "/" if escaped[1] == "S" else ".", path)


def step_in(values: CheckpointReader, name: str = "global_step") -> int | None:
    """Returns the step saved under tensorflow-estimator's name or `STEP`, if any."""
    is_one = values.shapes.get(name) == () and values.dtypes[name].is_integer
    return int(values.whole(name)) if is_one else None


def own_names(variables: Sequence[str]) -> dict[str, str]:
    """Returns variable -> its table's name in `to_tensorflow`, or itself if that is ambiguous."""
    wanted = {variable: saved_variables.own_name(variable) for variable in variables}
    names = list(wanted.values())
    return {
        variable: name if names.count(name) == 1 else variable for variable, name in wanted.items()
    }


NOT_IN_A_CHECKPOINT = [
    "features",
    "combiners",
    "initializers",
    "learning rates and other settings of optimizers",
    "clipping_limit",
    "experimental_gradient_multiplier_fn",
    "vocabularies",
]
"""Settings of tables that only the program's `EmbeddingConfigSpec` contains."""


class _Tf2(TableFormat):
    """Writes a checkpoint of `tf.train.Checkpoint`, and describes it in `tables.json`."""

    by_variable = True

    def write(self, folder: str, tables: Sequence[SavedTable]) -> None:
        names = own_names([table.name for table in tables])
        written = [(names[table.name], table, _class_with_slots(table)) for table in tables]
        source = tables[0].values
        step = step_in(source)
        keys = write(f"{folder}/{FILE}", written, step)
        described = [
            {
                "name": name,
                "vocabulary_size": table.rows,
                "dim": table.dimension,
                "optimizer": optimizer.__name__ if optimizer else None,
                "variables": moved((name, table, optimizer), keys),
                "left_out": left_out((name, table, optimizer)),
            }
            for name, table, optimizer in written
        ]
        contents = {
            "format": 1,
            "source": source.path,
            "checkpoint": FILE,
            "step": step,
            "tables": described,
            "not_in_a_checkpoint": NOT_IN_A_CHECKPOINT,
        }
        with tf.io.gfile.GFile(f"{folder}/tables.json", "w") as file:
            file.write(json.dumps(contents, indent=1, ensure_ascii=False) + "\n")

    def names(self, tables: Sequence[SavedTable]) -> dict[str, str]:
        return {}

    def told(self, folder: str, slots: bool) -> str:
        with tf.io.gfile.GFile(f"{folder}/tables.json") as file:
            contents = json.load(file)
        rows = [("table", "optimizer", "variable", "in the new checkpoint")]
        for table in contents["tables"]:
            first = table["name"], table["optimizer"] or ("none" if slots else "")
            places = {name: shown(key) for name, key in table["variables"].items()}
            places |= dict.fromkeys(table["left_out"], "left out, as TensorFlow 2 has no such slot")
            for name, place in places.items():
                rows.append((*first, name, place))
                first = "", ""
        if contents["step"] is not None:
            rows.append(("", "", "global_step", f"step, {contents['step']}"))
        missing = ", ".join(contents["not_in_a_checkpoint"])
        return (
            f"\n{aligned(rows)}\n\n"
            f"Not in a checkpoint, but in the program's EmbeddingConfigSpec: {missing}.\n"
            "estimator_emb.embedding.checkpoint_to_tensorflow takes the spec, and translates these "
            "too."
        )


def _class_with_slots(table: SavedTable) -> type[OptimizationParameters] | None:
    if not table.optimizer or len(table.variables) == 1:
        return None
    return tf2_class(saved_variables.optimizer_class(table.optimizer))


FORMAT = _Tf2()
