"""Finds host_calls that assign variables of the model or ask for the number of a core."""

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.guards.checks import tpu_ops
from estimator_emb.preflight import program_lines, static
from estimator_emb.preflight.described_step import Step
from estimator_emb.preflight.report import Finding

_WRITES = (
    "Assign",
    "ResourceApply",
    "ResourceScatter",
    "ResourceSparseApply",
    "ResourceStridedSliceAssign",
)


def findings(step: Step) -> list[Finding]:
    """Returns the findings about a host_call. `described` reports the errors of its function."""
    if step.host_call is None:
        return []
    function, tensors = step.host_call
    before = len(step.graph.get_operations())
    with step.graph.as_default(), tf.name_scope("host_call"):
        try:
            _call(function, tensors, step.replicas)
        except Exception:
            return []
    made = step.graph.get_operations()[before:]
    found: dict[tuple[str, str | None], tf.Operation] = {}
    for op in made:
        for variable, write in _written(op, made):
            found.setdefault(
                (variable.name, program_lines.line_of(write) or program_lines.line_of(op)), write
            )
    numbers = [
        Finding(
            "host_call asks for the number of a core, and its host has none",
            "xla.replica_id() in model_fn, which gives it to host_call as a tensor",
            op.type,
            op.name,
            where=program_lines.line_of(op),
        )
        for op in made
        if op.type == tpu_ops.NUMBER
    ]
    return numbers + [
        Finding(
            f"host_call assigns the variable {name!r} on the host, beside the TPU's steps and in "
            "no order with them",
            "assign it in model_fn, with the train_op",
            write.type,
            write.name,
            where=where,
        )
        for (name, where), write in found.items()
    ]


def _call(function: Any, tensors: Any, replicas: int) -> None:
    def placeholder(tensor: Any) -> tf.Tensor:
        tensor = tf.convert_to_tensor(tensor)
        shape = tensor.shape.as_list() if tensor.shape.rank else []
        if shape and shape[0]:
            shape[0] *= replicas
        return tf.compat.v1.placeholder(tensor.dtype, shape)

    if isinstance(tensors, Mapping):
        function(**{key: placeholder(tensor) for key, tensor in tensors.items()})
    else:
        function(*[placeholder(tensor) for tensor in tensors])


def _written(op: tf.Operation, made: list[tf.Operation]) -> Iterator[tuple[Any, Any]]:
    """Yields (variable, op that writes it) for variables created before the host_call."""
    variables = [
        tensor.op
        for tensor in op.inputs
        if tensor.op.type == "VarHandleOp" and tensor.op not in made
    ]
    if not variables:
        return
    if op.type.startswith(_WRITES):
        yield variables[0], op
    for _, graph in static.called(op.node_def, op.graph):
        for inner in graph.get_operations():
            if inner.type.startswith(_WRITES):
                outer = _outer(inner.inputs[0], graph, op)
                if outer in variables:
                    yield outer, inner


def _outer(resource: tf.Tensor, graph: Any, call: tf.Operation) -> Any:
    for captured, inner in getattr(graph, "captures", ()):
        if inner is resource:
            return captured.op
    for argument, inner in zip(reversed(list(call.inputs)), reversed(graph.inputs), strict=False):
        if inner is resource:
            return argument.op
    return None
