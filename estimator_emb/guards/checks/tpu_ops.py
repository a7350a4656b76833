"""Ops of a TPU's cores: the op for a core's number, rejected elsewhere, and sums over cores."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from estimator_emb.reporting import frames

NUMBER = "XlaReplicaId"
"""Type of the op that returns a core's number. Its CPU kernel aborts the process."""

SUMS = frozenset(("CollectiveReduceV2", "CrossReplicaSum", "XlaAllReduce"))
"""Types of the ops that sum over cores."""

SUMS_GRADIENTS = "tf.compat.v1.tpu.CrossShardOptimizer(optimizer)"

_HAS_NONE = (
    " is xla.replica_id(), which has no number here. Only model_fn has one, on a core of a real or "
    "emulated TPU: input_fn, the functions of host_call and eval_metrics, and use_tpu=False have "
    "none. Call it, as a function of its module, in model_fn where params['context'].num_replicas "
    "is more than 1, and give host_call the tensor."
)


def check_core_numbers(by_type: Mapping[str, Sequence[tf.Operation]]) -> None:
    """Raises ValueError if an op of the default graph asks for its core number."""
    graph = tf.compat.v1.get_default_graph()
    if graph._get_control_flow_context() is not None:
        return  # This is the graph of a TPU: models without tables are exported for TPUs too.
    for op in by_type.get(NUMBER, ()):
        line = frames.line_of_program(op)
        raise ValueError(f"Op {op.name!r}{f' ({line})' if line else ''}{_HAS_NONE}")
    for name, function in graph._functions.items():
        for node in function.definition.node_def:
            if node.op == NUMBER:
                raise ValueError(f"Op {node.name!r} of function {name!r}{_HAS_NONE}")
