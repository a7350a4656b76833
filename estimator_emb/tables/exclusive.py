"""Admits one trainer at a time to the tables of a parameter server.

An optimizer step on a row reads it, computes, and writes it. Nothing holds the row between graphs,
and the step of another trainer meanwhile would be lost. So every step on the tables of a server,
whatever computes it, holds that server's one mutex.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

_MUTEX = "estimator_emb_tables"
"""A resource of the server's process, which the graphs of all trainers find by this name."""


def run_alone(
    step: Callable[[Sequence[tf.Tensor]], tf.Operation], inputs: Sequence[tf.Tensor]
) -> tf.Operation:
    """Runs a step on the tables of the graph's current device while no other runs there.

    `step` gets `inputs` as they arrived on the device. Its ops must read everything else where the
    tables are, so that they wait for no other process.
    """
    with tf.name_scope("exclusive"):
        # Arrived before the mutex is taken: a trainer that dies while it sends holds nothing up.
        arrived = [tf.identity(one) for one in inputs]
        mutex = tf.raw_ops.MutexV2(shared_name=_MUTEX)
        with tf.control_dependencies(arrived):
            lock = tf.raw_ops.MutexLock(mutex=mutex)
        with tf.control_dependencies([lock]):
            done = step([tf.identity(one) for one in arrived])
        # The mutex is free again when this lock is: after the step, or with it where it fails.
        with tf.control_dependencies([done]):
            return tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
