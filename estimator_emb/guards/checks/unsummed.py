"""Finds model variables with gradients that are not summed over the cores."""

from collections.abc import Iterable

import tensorflow as tf

from estimator_emb.engine.ordering import accesses, structure
from estimator_emb.engine.tables.helper_variable import HELPER_VARIABLE

SUMS = frozenset(("CollectiveReduceV2", "CrossReplicaSum", "XlaAllReduce"))
"""Types of the ops that sum over cores."""

REMEDY = "tf.compat.v1.tpu.CrossShardOptimizer(optimizer)"


def unsummed(
    train_op: tf.Operation | tf.Tensor,
    inputs: Iterable[tf.Tensor],
    exchanged: Iterable[tf.Tensor] = (),
) -> list[str]:
    """Returns the trainable variables that core 0 updates from only its own part of the batch.

    In a step, core 0 runs `train_op` on `inputs`, its part of the batch. `exchanged` contains
    tensors that cores have exchanged without an op of `SUMS`.
    """
    before: dict = {}
    ops = structure.leading_to([getattr(train_op, "op", train_op)], before)
    given = {tensor.op for tensor in inputs}
    sums = {tensor.op for tensor in exchanged}
    from_input: set[tf.Operation] = set()
    from_sum: set[tf.Operation] = set()
    for op in ops:
        if op in sums or op.type in SUMS or any(previous in from_sum for previous in before[op]):
            from_sum.add(op)
        elif op in given or any(previous in from_input for previous in before[op]):
            from_input.add(op)
    trained = {
        variable.op.name
        for variable in tf.compat.v1.trainable_variables()
        if isinstance(variable, tf.Variable) and HELPER_VARIABLE not in variable.name
    }
    return [
        variable.name
        for variable in accesses.variables_of(tf.compat.v1.get_default_graph())
        if variable.name in trained and any(op in from_input for op in variable.writes)
    ]
