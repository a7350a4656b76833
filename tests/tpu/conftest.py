"""Finds the TPU for the tests of this folder.

The environment variable TPU_NAME is the TPU's name or address. If it is unset, the TPU of this
machine is used.
"""

import os

import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu_system_metadata

import estimator_emb  # noqa: F401  (binds Keras 2)


@pytest.fixture(scope="session")
def tpu():
    """Returns (resolver, number of cores) of a TPU with a single host."""
    name = os.environ.get("TPU_NAME", "local")
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        cluster = resolver.cluster_spec()
        with tf.Graph().as_default():
            found = tpu_system_metadata._query_tpu_system_metadata(
                resolver.master(), cluster.as_cluster_def() if cluster else None
            )
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        pytest.skip(f"TPU {name!r} was not found: {error}")
    if not found.num_cores:
        pytest.skip(f"TPU {name!r} was not found: its devices are {found.devices}")
    if found.num_hosts != 1:
        pytest.skip(f"these tests feed one host; TPU {name!r} has {found.num_hosts}")
    return resolver, found.num_cores
