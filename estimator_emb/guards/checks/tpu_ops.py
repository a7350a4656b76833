"""Rejects TPU-only ops before a session opens."""

import functools
from collections.abc import Container, Mapping, Sequence

import tensorflow as tf

from estimator_emb.compat.internals.tpu import registered_kernels
from estimator_emb.reporting import frames

NUMBER = "XlaReplicaId"
"""Type of the op that returns a core's number. Its CPU kernel aborts the process."""

_DEVICES = frozenset(("CPU", "DEFAULT", "GPU"))
_REPLACED = ("AccumulateNV2",)
"""Ops that TensorFlow replaces before it looks for a kernel. They need no kernel."""
_UNIMPLEMENTED = ("XlaRecv", "XlaSend")
"""Ops with kernels that always fail."""


def check_kernels(by_type: Mapping[str, Sequence[tf.Operation]]) -> None:
    """Raises an error if an op of the default graph asks for its core number or has no kernel."""
    graph = tf.compat.v1.get_default_graph()
    if graph._get_control_flow_context() is not None:
        return  # This is the graph of a TPU: models without tables are exported for TPUs too.
    for kind, (op, *_) in by_type.items():
        if kind == NUMBER:
            raise ValueError(f"{_shown(op)}{_HAS_NONE}")
        if not (graph._is_function(kind) or has_kernel(kind)):
            raise tf.errors.InvalidArgumentError(
                None,
                None,
                f"No OpKernel was registered to support Op {kind!r} on a CPU or GPU: "
                f"{_shown(op)}. {_advice(kind, by_type)}",
            )
    for name, function in graph._functions.items():
        for node in function.definition.node_def:
            if node.op == NUMBER:
                raise ValueError(f"Op {node.name!r} of function {name!r}{_HAS_NONE}")


_OTHERS = (
    "Without a TPU, model_fn can call tpu_ops.cross_replica_sum, tpu_ops.all_to_all, "
    "tpu_ops.collective_permute and tpu_ops.tpu_replicated_input, as functions of that module."
)
_OF_ALL_CORES = (
    "It gives the host the values of all cores: return the tensor in host_call or eval_metrics, "
    "which get them."
)
_OF_REPLICATE = (
    "tpu.rewrite, tpu.replicate, tpu.shard and tpu.batch_parallel run on a TPU only. A model_fn is "
    "on its core already: call the computation itself."
)
_ADVICE = {
    "TPUReplicatedInput": "Call it, as tpu_ops.tpu_replicated_input, in model_fn only.",
    "TPUReplicatedOutput": _OF_ALL_CORES,
    "TPUPartitionedInput": "Give model_fn the whole tensor: an emulated core has all of it.",
    "TPUPartitionedOutput": "Read the whole tensor: an emulated core has all of it.",
}
"""Op that only runs on a TPU -> what to do instead."""

_HAS_NONE = (
    " is xla.replica_id(), which has no number here. Only model_fn has one, on a core of a real or "
    "emulated TPU: input_fn, the functions of host_call and eval_metrics, and use_tpu=False have "
    "none. Call it, as a function of its module, in model_fn where params['context'].num_replicas "
    "is more than 1, and give host_call the tensor."
)


def _advice(kind: str, by_type: Container[str]) -> str:
    if kind.startswith("TPU") and "TPUReplicateMetadata" in by_type:
        return _OF_REPLICATE
    return _ADVICE.get(kind, _OTHERS)


@functools.cache
def has_kernel(op_type: str) -> bool:
    """Returns whether TensorFlow's ops of this type run on a CPU or GPU."""
    if op_type in (*_REPLACED, *_UNIMPLEMENTED):
        return op_type in _REPLACED
    return any(kernel.device_type in _DEVICES for kernel in registered_kernels(op_type).kernel)


def _shown(op: tf.Operation) -> str:
    line = frames.line_of_program(op)
    return f"Op {op.name!r}{f' ({line})' if line else ''}"
