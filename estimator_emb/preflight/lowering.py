# SPDX-License-Identifier: Apache-2.0
"""Writes the graph of a step so that TensorFlow can lower it without a TPU."""

import json
import pathlib

import tensorflow as tf

from estimator_emb.preflight import static
from estimator_emb.preflight.step import Step
from estimator_emb.xla.core_step import CROSS_REPLICA_SUM, CannotLower

_DROPPED = ("_class", "_output_shapes", "_pivot_for_cluster", static.CLUSTER, "_tpu_input_identity")


def write(step: Step, folder: pathlib.Path) -> None:
    """Writes the step for `xla/lower.py`: graph.pb, and step.json with its interface.

    Ops outside compilation are left out: the tensors that they give the step become arguments, and
    those that they take from it results. Raises CannotLower where that or another part fails.
    """
    ops = static.reachable(step)
    arguments = {}
    results = {tensor.name: tensor for _, tensor in step.results}
    argument_ops = {tensor.op for tensor in step.arguments}
    variables = [op for op in ops if op.type == "VarHandleOp"]

    def kept(op: tf.Operation) -> bool:
        return not (
            op in argument_ops
            or op.type in ("VarHandleOp", "TPUReplicatedInput", "TPUReplicateMetadata")
            or static.OUTSIDE in op.node_def.attr
        )

    graph = tf.compat.v1.GraphDef()
    graph.versions.CopyFrom(step.graph.graph_def_versions)
    for op in ops:
        outside = static.OUTSIDE in op.node_def.attr
        if outside:
            for tensor in op.inputs:
                if kept(tensor.op):
                    results[tensor.name] = tensor
        if not kept(op):
            continue
        for tensor in op.inputs:
            if tensor.op in argument_ops or static.OUTSIDE in tensor.op.node_def.attr:
                arguments[tensor.name] = tensor
        node = graph.node.add()
        node.CopyFrom(op.node_def)
        del node.input[:]
        node.input.extend(tensor.name for tensor in op.inputs)
        node.input.extend(f"^{control.name}" for control in op.control_inputs if kept(control))
        groups = _summed_groups(op)
        if groups is not None:
            _substitute(node, op.outputs[0], groups)
        _clean(node)
    _add_functions(graph, step)

    for name, tensor in arguments.items():
        if not tensor.shape.is_fully_defined():
            raise CannotLower(
                f"outside_compilation gives the step {name} of the dynamic shape {tensor.shape}."
            )
    interface = {
        "arguments": [
            {"name": name, "dtype": tensor.dtype.name, "shape": tensor.shape.as_list()}
            for name, tensor in arguments.items()
        ],
        "variables": [
            {
                "name": op.outputs[0].name,
                "dtype": tf.as_dtype(op.get_attr("dtype")).name,
                "shape": tf.TensorShape(op.get_attr("shape")).as_list(),
            }
            for op in variables
        ],
        "results": [name for name, tensor in results.items() if kept(tensor.op)],
        "train_op": None
        if step.train_op is None or not kept(step.train_op)
        else step.train_op.name,
    }
    (folder / "graph.pb").write_bytes(graph.SerializeToString())
    (folder / "step.json").write_text(json.dumps(interface))


def _summed_groups(op: tf.Operation) -> str | None:
    """Returns the groups of cores over which an op sums, as HLO writes them; None for other ops."""
    if op.type != "CrossReplicaSum":
        return None
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
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups.tolist()) + "}"


def _substitute(node: tf.compat.v1.NodeDef, output: tf.Tensor, groups: str) -> None:
    if not output.shape.is_fully_defined():
        raise CannotLower(f"{node.name} sums a tensor of the dynamic shape {output.shape}.")
    node.op = "XlaCustomCall"
    del node.input[1]
    dtype = node.attr["T"].type
    node.attr.clear()
    node.attr["T"].list.type.append(dtype)
    node.attr["dtype"].type = dtype
    node.attr["shape"].shape.CopyFrom(output.shape.as_proto())
    node.attr["target_name"].s = CROSS_REPLICA_SUM.encode()
    node.attr["backend_config"].s = groups.encode()


def _clean(node: tf.compat.v1.NodeDef) -> None:
    node.device = ""
    for name in _DROPPED:
        node.attr.pop(name, None)


def _add_functions(graph: tf.compat.v1.GraphDef, step: Step) -> None:
    """Adds the functions that the step calls, without their ops outside compilation."""
    graphs = static.graphs_of_functions(step)
    library = step.graph.as_graph_def().library
    for function in library.function:
        name = function.signature.name
        if name in graphs:
            _edit_function(function, graphs[name])
        graph.library.function.add().CopyFrom(function)
    graph.library.gradient.extend(library.gradient)


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
            op = graph.get_operation_by_name(node.name)
            groups = _summed_groups(op)
            assert groups is not None
            _substitute(node, op.outputs[0], groups)
        _clean(node)
    remaining = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del function.node_def[:]
    function.node_def.extend(remaining)
    for key in [key for key, name in function.control_ret.items() if name in outside]:
        del function.control_ret[key]
        function.signature.control_output.remove(key)
