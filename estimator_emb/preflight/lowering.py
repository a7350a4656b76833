# SPDX-License-Identifier: Apache-2.0
"""Writes the graph of a step so that TensorFlow can lower it without a TPU."""

import json
import pathlib

import tensorflow as tf

from estimator_emb.preflight import static
from estimator_emb.preflight.step import Step
from estimator_emb.xla import core_step
from estimator_emb.xla.core_step import CannotLower

_OF_TPU = ("TPUReplicatedInput", "TPUReplicateMetadata")


def write(step: Step, folder: pathlib.Path) -> None:
    """Writes the step for `xla/lower.py`: graph.pb, and step.json with its interface.

    Ops outside compilation are left out: the tensors that they give the step become arguments, and
    those that they take from it results. Raises CannotLower where that or another part fails.
    """
    ops = static.reachable(step)
    outside = [op for op in ops if static.OUTSIDE in op.node_def.attr]
    left_out = {*outside, *(tensor.op for tensor in step.arguments)}
    inside = {op.name for op in ops if op not in left_out and op.type not in _OF_TPU}
    leaving = [*(one for _, one in step.results), *(one for op in outside for one in op.inputs)]
    results = {one.name: one for one in leaving if one.op.name in inside}
    train_op = step.train_op if step.train_op and step.train_op.name in inside else None
    with step.graph.as_default():
        taken = core_step.taken_out(ops, inside, list(results.values()), train_op)
    for node in taken.graph.node:
        if node.op == "CrossReplicaSum":
            _sum(node, step.graph.get_operation_by_name(node.name))
    graphs = static.graphs_of_functions(step)
    for function in taken.graph.library.function:
        if function.signature.name in graphs:
            _edit_function(function, graphs[function.signature.name])
    (folder / "graph.pb").write_bytes(taken.graph.SerializeToString())
    (folder / "step.json").write_text(json.dumps(taken.interface()))


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
