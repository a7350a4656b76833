# SPDX-License-Identifier: Apache-2.0
"""Takes the step of one core out of a session's graph, for `lower.py` to turn into StableHLO."""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.step.cores import Cores

CROSS_REPLICA_SUM = "estimator_emb.cross_replica_sum"
_DROPPED = ("_class", "_output_shapes", "_XlaCompile", "_XlaScope")


class RecordingCores(Cores):
    """The cores of a step that is not copied: every input of core 0 is known, of one core too."""

    def per_core(self, values: Sequence[tf.Tensor]) -> tf.Tensor:
        mine = tf.identity(values[0])
        self._per_core[mine.name] = [mine, *values[1:]]
        return mine

    def stand_ins(self, dtype: tf.DType, shape: Any) -> list[tf.Tensor]:
        made = super().stand_ins(dtype, shape)
        self._per_core[made[0].name] = made
        return made


@dataclasses.dataclass(frozen=True)
class CoreStep:
    """The part of a graph that a core runs.

    Attributes:
      arguments: what it reads of the session's graph.
      variables: the ops of the handles of the variables that it reads or writes.
      results: what the session gets.
    """

    graph: tf.compat.v1.GraphDef
    arguments: list[tf.Tensor]
    variables: list[tf.Operation]
    results: list[tf.Tensor]
    train_op: tf.Operation | None

    def write(self, folder: pathlib.Path) -> None:
        interface = {
            "arguments": [
                {"name": one.name, "dtype": one.dtype.name, "shape": one.shape.as_list()}
                for one in self.arguments
            ],
            "variables": [
                {
                    "name": op.outputs[0].name,
                    "dtype": tf.as_dtype(op.get_attr("dtype")).name,
                    "shape": tf.TensorShape(op.get_attr("shape")).as_list(),
                }
                for op in self.variables
            ],
            "results": [one.name for one in self.results],
            "train_op": self.train_op and self.train_op.name,
        }
        (folder / "graph.pb").write_bytes(self.graph.SerializeToString())
        (folder / "step.json").write_text(json.dumps(interface))


def of_core(
    cores: Cores,
    results: Sequence[tf.Tensor],
    train_op: tf.Operation | None,
    is_of_core: Callable[[tf.Operation], bool],
) -> CoreStep:
    """Returns the step that leads to `results` and `train_op`.

    `is_of_core` says of an op that depends on no core's input whether model_fn made it.
    """
    graph = tf.compat.v1.get_default_graph()
    collectives = {one.output.name: one for one in cores.collectives}
    sources = {name for name in cores.per_core_names if name not in collectives}
    roots = [tensor.op for tensor in results] + ([train_op] if train_op is not None else [])
    needed = _needed(roots, sources, collectives)
    inside = _inside(needed, sources, collectives, is_of_core)
    made = tf.compat.v1.GraphDef()
    made.versions.CopyFrom(graph.graph_def_versions)
    arguments: dict[str, tf.Tensor] = {}
    variables = [op for op in needed if op.type == "VarHandleOp"]
    for op in needed:
        if op.name not in inside or op.type == "VarHandleOp":
            continue
        node = made.node.add()
        node.CopyFrom(op.node_def)
        collective = collectives.get(op.outputs[0].name) if op.outputs else None
        inputs = [collective.value] if collective else list(op.inputs)
        del node.input[:]
        for tensor in inputs:
            node.input.append(tensor.name)
            if tensor.op.type == "VarHandleOp":
                continue
            if tensor.name in sources or tensor.op.name not in inside:
                arguments[tensor.name] = tensor
        node.input.extend(f"^{one.name}" for one in op.control_inputs if one.name in inside)
        if collective:
            _substitute(node, collective)
        node.device = ""
        for name in _DROPPED:
            node.attr.pop(name, None)
    _add_functions(made, graph)
    for tensor in results:
        if tensor.name in sources or tensor.op.name not in inside:
            arguments[tensor.name] = tensor
    return CoreStep(made, list(arguments.values()), variables, list(results), train_op)


def _needed(
    roots: Iterable[tf.Operation], sources: set[str], collectives: dict[str, Any]
) -> list[tf.Operation]:
    seen = set(roots)
    waiting = list(seen)
    while waiting:
        op = waiting.pop()
        collective = collectives.get(op.outputs[0].name) if op.outputs else None
        inputs = [collective.value] if collective else op.inputs
        for before in (*(one.op for one in inputs if one.name not in sources), *op.control_inputs):
            if before not in seen:
                seen.add(before)
                waiting.append(before)
    return sorted(seen, key=lambda op: op._id)


def _inside(
    needed: list[tf.Operation],
    sources: set[str],
    collectives: dict[str, Any],
    is_of_core: Callable[[tf.Operation], bool],
) -> set[str]:
    inside = set()
    for op in needed:
        own = is_of_core(op) or op.type in ("VarHandleOp", "ReadVariableOp", "Const")
        depends = any(one.name in sources or one.op.name in inside for one in op.inputs)
        if own or (op.outputs and op.outputs[0].name in collectives):
            inside.add(op.name)
        elif depends and not all(one.op.type in ("VarHandleOp", "Const") for one in op.inputs):
            inside.add(op.name)
    return inside


def _substitute(node: tf.compat.v1.NodeDef, collective: Any) -> None:
    if collective.kind != "cross_replica_sum":
        raise NotImplementedError(f"{collective.kind} does not run on PJRT devices.")
    groups = ",".join("{" + ",".join(map(str, group)) + "}" for group in collective.groups)
    dtype = node.attr["T"].type
    node.op = "XlaCustomCall"
    node.attr.clear()
    node.attr["T"].list.type.append(dtype)
    node.attr["dtype"].type = dtype
    node.attr["shape"].shape.CopyFrom(collective.output.shape.as_proto())
    node.attr["target_name"].s = CROSS_REPLICA_SUM.encode()
    node.attr["backend_config"].s = ("{" + groups + "}").encode()


def _add_functions(made: tf.compat.v1.GraphDef, graph: tf.Graph) -> None:
    library = graph.as_graph_def().library
    known = {one.signature.name: one for one in library.function}
    wanted: dict[str, Any] = {}
    waiting = list(made.node)
    while waiting:
        node = waiting.pop()
        names = [node.op]
        for value in node.attr.values():
            names += [one.name for one in ([value.func] if value.HasField("func") else value.list.func)]
        for name in names:
            if name in known and name not in wanted:
                wanted[name] = known[name]
                waiting += known[name].node_def
    for function in wanted.values():
        made.library.function.add().CopyFrom(function)
    made.library.gradient.extend(
        one for one in library.gradient if one.function_name in wanted
    )
