"""Delayed reads and writes, for tests of their order."""

import contextlib
import time

import tensorflow as tf

v1 = tf.compat.v1


def slowly(value):
    """Returns `value` as a tensor that arrives later than any write."""

    def sleep(value):
        time.sleep(0.02)
        return value

    (late,) = v1.py_func(sleep, [value], [value.dtype])
    late.set_shape(value.shape)
    return late


@contextlib.contextmanager
def control_flow(version):
    """Makes TensorFlow build conditions and loops of version 1 or 2."""
    before = v1.control_flow_v2_enabled()
    (v1.enable_control_flow_v2 if version == 2 else v1.disable_control_flow_v2)()
    try:
        yield
    finally:
        (v1.enable_control_flow_v2 if before else v1.disable_control_flow_v2)()


@contextlib.contextmanager
def held_back():
    with tf.control_dependencies([slowly(tf.constant(0.0))]):
        yield
