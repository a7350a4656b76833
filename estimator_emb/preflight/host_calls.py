"""Finds what a host_call does to the variables of the model, and what it asks of the host."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.checks import tpu_ops
from estimator_emb.ordering import accesses
from estimator_emb.preflight import program, static
from estimator_emb.preflight.report import Finding
from estimator_emb.preflight.step import Step


def findings(step: Step) -> list[Finding]:
    """Returns findings about a host_call; errors of its function are `described`'s to report."""
    if step.host_call is None:
        return []
    function, tensors = step.host_call
    older = step.graph.get_operations()
    with step.graph.as_default(), tf.name_scope("host_call"):
        try:
            _call(function, tensors, step.replicas)
        except Exception:
            return []
    made = step.graph.get_operations()[len(older) :]
    names = {op.name for op in older}
    found: dict[tuple[str, str | None], tf.Operation] = {}
    bodies = [(body, op) for op in made for _, body in static.called(op.node_def, step.graph)]
    for graph, call in [(step.graph, None), *bodies]:
        for variable in accesses.variables_of(graph):
            for op in variable.writes if variable.name in names else ():
                if (call or op in made) and not any(static.called(op.node_def, graph)):
                    where = program.line_of(op) or (call and program.line_of(call))
                    found.setdefault((variable.name, where), op)
    numbers = [
        Finding(
            "host_call asks for the number of a core, and its host has none",
            "xla.replica_id() in model_fn, which gives it to host_call as a tensor",
            op.type,
            op.name,
            where=program.line_of(op),
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
