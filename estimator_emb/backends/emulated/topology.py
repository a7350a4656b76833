# SPDX-License-Identifier: Apache-2.0
"""The shape of an emulated TPU."""

import tensorflow as tf

from estimator_emb.compat.internals.tpu_estimator import NUM_CORES_TO_COMPUTATION_SHAPE


def emulated(cores: int) -> tf.tpu.experimental.Topology:
    """Returns the topology of one host with so many cores.

    A slice of a TPU where there is one of that size, else a line of chips with one core each.
    """
    shape = NUM_CORES_TO_COMPUTATION_SHAPE.get(cores, [cores, 1, 1, 1])
    x, y, z, on_chip = shape
    coordinates = [
        [i, j, k, core]
        for k in range(z)
        for j in range(y)
        for i in range(x)
        for core in range(on_chip)
    ]
    return tf.tpu.experimental.Topology(mesh_shape=shape, device_coordinates=[coordinates])
