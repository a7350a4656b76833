"""How gradients are summed over the cores of a TPU."""

SUMS = frozenset(("CollectiveReduceV2", "CrossReplicaSum", "XlaAllReduce"))
"""Types of the ops that sum over cores."""

REMEDY = "tf.compat.v1.tpu.CrossShardOptimizer(optimizer)"
