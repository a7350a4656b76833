# SPDX-License-Identifier: Apache-2.0
"""Writes the graph of a step so that TensorFlow can lower it without a TPU."""

import json
import pathlib

import tensorflow as tf

from estimator_emb.preflight import static
from estimator_emb.preflight.step import Step
from estimator_emb.xla import core_step
from estimator_emb.xla.core_step import CannotLower

_LEFT_OUT = ("VarHandleOp", "TPUReplicatedInput", "TPUReplicateMetadata")


def write(step: Step, folder: pathlib.Path) -> None:
    """Writes the step for `xla/lower.py`: graph.pb, and step.json with its interface.

    Ops outside compilation are left out: the tensors that they give the step become arguments, and
    those that they take from it results. Raises CannotLower where that or another part fails.
    """
    ops = static.reachable(step)
    outside = {op for op in ops if static.OUTSIDE in op.node_def.attr}
    sources = outside | {tensor.op for tensor in step.arguments}
    arguments = {}
    results = {tensor.name: tensor for _, tensor in step.results}

    def kept(op: tf.Operation) -> bool:
        return not (op in sources or op.type in _LEFT_OUT)

    graph = tf.compat.v1.GraphDef()
    graph.versions.CopyFrom(step.graph.graph_def_versions)
    for op in ops:
        if op in outside:
            results.update({tensor.name: tensor for tensor in op.inputs if kept(tensor.op)})
        if not kept(op):
            continue
        arguments.update({tensor.name: tensor for tensor in op.inputs if tensor.op in sources})
        node = core_step.add_node(graph, op, op.inputs, filter(kept, op.control_inputs))
        if op.type == "CrossReplicaSum":
            _sum(node, op)
    core_step.add_functions(graph, step.graph)
    graphs = static.graphs_of_functions(step)
    for function in graph.library.function:
        if function.signature.name in graphs:
            _edit_function(function, graphs[function.signature.name])
    for name, tensor in arguments.items():
        if not tensor.shape.is_fully_defined():
            raise CannotLower(
                f"outside_compilation gives the step {name} of the dynamic shape {tensor.shape}."
            )
    interface = core_step.interface(
        arguments.values(),
        [op for op in ops if op.type == "VarHandleOp"],
        [tensor for tensor in results.values() if kept(tensor.op)],
        step.train_op if step.train_op is not None and kept(step.train_op) else None,
    )
    (folder / "graph.pb").write_bytes(graph.SerializeToString())
    (folder / "step.json").write_text(json.dumps(interface))


def _sum(node: tf.compat.v1.NodeDef, op: tf.Operation) -> None:
    """Makes of the node of a CrossReplicaSum the custom call in its place."""
    tensor = op.inputs[1]
    groups = tf.get_static_value(tensor)
    while groups is None and tensor.op.type == "Placeholder":  # Captured by a function.
        outer = [outer for outer, inner in getattr(tensor.graph, "captures", ()) if inner is tensor]
        if not outer:
            break
        tensor = outer[0]
        groups = tf.get_static_value(tensor)
    if groups is None:
        raise CannotLower(f"the groups of {op.name} are no constants.")
    del node.input[1]
    core_step.sum_over_cores(node, op.outputs[0].shape, groups.tolist())


def _edit_function(function: tf.compat.v1.NodeDef, graph: tf.Graph) -> None:
    # The graph is asked: only there are the ops marked that TensorFlow itself puts outside.
    outside = {op.name for op in graph.get_operations() if static.OUTSIDE in op.node_def.attr}
    nodes = [node for node in function.node_def if node.name not in outside]
    used = {name.split(":")[0] for node in nodes for name in node.input if not name.startswith("^")}
    used.update(name.split(":")[0] for name in function.ret.values())
    if used & outside:
        raise CannotLower(
            f"the step needs what outside_compilation gives within {function.signature.name} "
            f"({', '.join(sorted(used & outside))})."
        )
    for node in nodes:
        kept = [name for name in node.input if name.removeprefix("^") not in outside]
        del node.input[:]
        node.input.extend(kept)
        if node.op == "CrossReplicaSum":
            _sum(node, graph.get_operation_by_name(node.name))
        core_step.clean(node)
    remaining = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del function.node_def[:]
    function.node_def.extend(remaining)
    for key in [key for key, name in function.control_ret.items() if name in outside]:
        del function.control_ret[key]
        function.signature.control_output.remove(key)
