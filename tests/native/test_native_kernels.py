"""The native kernels equal TensorFlow's own ops: all activations, tables and slots."""

import harness
import host_engine
import numpy as np
import pytest
import tensorflow as tf
from host_engine import one_table

import estimator_emb as ee

pytestmark = pytest.mark.usefixtures("native")  # Turns the native kernels on.


@pytest.mark.fast(1)  # All cases but one are slow.
@pytest.mark.parametrize("rows", [1, 300, 5000, harness.slow(3_000_000)])
@pytest.mark.parametrize("count, shards", [(1, 1), (600, 1), (40_000, 1), (40_000, 3)])
def test_kernels_equal_the_ops_for_every_size(rows, count, shards):
    """These sizes cover each number of sorting passes, and tables shared by several threads."""
    rng = np.random.default_rng(rows)
    ids = (rng.zipf(1.2, count) - 1) * 7919 % rows  # A few ids are frequent, in any places.
    host_engine.assert_same_on_both_kernels(
        one_table(ee.AdagradParameters(0.1), rows, 1),
        [({"x": ids}, {"x": np.round(harness.normal(rng, count, 1) * 8) / 8})],  # Exact sums.
        shards=shards,
    )


@pytest.mark.fast(1)  # All cases but one are slow.
@pytest.mark.parametrize("dimension", [8, 16, 20])
@pytest.mark.parametrize("positions", [None, 7])
def test_kernels_equal_the_ops_beyond_the_cpu_cache(dimension, positions):
    """The activations of a feature of one id, or of sequences, take over 1 MB."""
    rng = np.random.default_rng(dimension)
    size = 320_000 // dimension
    shape = [size] if positions is None else [size // positions, positions]
    ids = rng.integers(0, 5000, shape)
    feature = {"max_sequence_length": positions or 0}
    spec = one_table(ee.AdagradParameters(0.1), 5000, dimension, feature=feature)
    slopes = np.round(harness.normal(rng, *shape, dimension) * 8) / 8  # Their sums are exact.
    host_engine.assert_same_on_both_kernels(spec, [({"x": ids}, {"x": slopes})])


def test_results_do_not_depend_on_threads():
    """Two trainings give the same bits, although their threads may run in another order."""
    rng = np.random.default_rng(2)
    spec = one_table(ee.AdagradParameters(0.1), 50, 8)
    batches = [({"x": rng.integers(0, 50, 20_000)}, {"x": harness.normal(rng, 20_000, 8)})]
    (_, first), (_, again) = (host_engine.train(spec, batches, native=True) for _ in range(2))
    np.testing.assert_array_equal(first["t"], again["t"])


def test_a_tensor_read_before_an_update_keeps_its_values(native):
    """A read of the whole table shares the table's memory until a sparse write."""
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("t", initializer=tf.ones([4, 8]), use_resource=True)
        before = variable.read_value()
        with tf.control_dependencies([before]):
            features = host_engine.fields_of_features(1, tf.constant([1, 1], tf.int64))
            *_, update = host_engine.looked_up_and_descended(native, [variable], features)
        with tf.control_dependencies([update]):
            kept, after = tf.identity(before), variable.read_value()
        with tf.compat.v1.Session() as session:
            session.run(variable.initializer)
            kept, after = session.run([kept, after])
    np.testing.assert_array_equal(kept, np.ones([4, 8]))
    np.testing.assert_array_equal(after[:, 0], [1, 1 - 2, 1, 1])  # Minus 1 for each id 1.
