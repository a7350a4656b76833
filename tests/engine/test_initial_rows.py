"""Parts of tables on several hosts begin with the rows of one process, whatever the initializer."""

import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.engine.tables import initial_rows, storage
from estimator_emb.spec.resolved import Table

v1 = tf.compat.v1
ROWS, DIM = 1003, 7


def own(shape, dtype=tf.float32):
    """Draws once, uses the values twice, and depends on the shape."""
    drawn = tf.random.normal(shape, dtype=dtype)
    return drawn * drawn + shape[0]


def of_place(shape, dtype, partition_info=None):
    assert partition_info is None
    return tf.random.uniform(shape, dtype=dtype, seed=3) * tf.range(1.0, DIM + 1)


def in_numpy(shape, dtype=tf.float32):
    return np.random.RandomState(4).normal(size=shape).astype(np.float32)


def stateless(shape, dtype=tf.float32):
    return 2.0 - tf.random.stateless_truncated_normal(shape, [5, 6], dtype=dtype)


def wider(shape, dtype=tf.float32):
    return tf.cast(tf.random.normal(shape, dtype=tf.float64, seed=1), dtype)


BOUNDED = {
    "default": None,
    "zeros": v1.zeros_initializer(),
    "constant": v1.constant_initializer(0.5),
    "normal": v1.random_normal_initializer(),
    "normal of seed": tf.random_normal_initializer(stddev=0.1, seed=1),
    "uniform of seed": v1.random_uniform_initializer(-1, 1, seed=2**40),
    "truncated of seed": v1.truncated_normal_initializer(stddev=0.1, seed=-7),
    "of the shape": v1.glorot_uniform_initializer(),
    "of the shape and seed": v1.variance_scaling_initializer(seed=3),
    "keras": tf.keras.initializers.TruncatedNormal(seed=3),
    "own": own,
    "stateless": stateless,
    "of the place": of_place,
}
WHOLE = {
    "values": v1.constant_initializer(np.arange(ROWS * DIM, dtype=np.float32).reshape(ROWS, DIM)),
    "orthogonal": v1.orthogonal_initializer(seed=1),
    "identity": v1.initializers.identity(),
    "numpy": in_numpy,
    "float64": wider,
}


def variables(initializer, seed, part=None):
    """Returns the value of a table, or of a host's part. Another variable draws before."""
    config = ee.TableConfig(ROWS, DIM, initializer)
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(seed)
        v1.get_variable("other", [3])
        table = Table(name="t", config=config, optimizer=ee.AdagradParameters(0.1), features=())
        (made,) = storage.create(table, "t", name_as_part=True, part=part)
        session.run(v1.global_variables_initializer())
        return session.run([made.weights, *made.slots])


@pytest.mark.parametrize("seed", [1, 0, None])
@pytest.mark.parametrize("name", [*BOUNDED, *WHOLE])
def test_hosts_begin_with_the_rows_of_one_process(name, seed):
    initializer = (BOUNDED | WHOLE)[name]
    parts = [variables(initializer, seed, (host, 3)) for host in range(3)]
    found = [np.concatenate(one) for one in zip(*parts, strict=True)]
    if seed is None and name in ("default", "normal", "of the shape", "own"):
        first, second = (one[0] for one in parts[:2])
        assert not (first[:300] == second[:300]).all(1).any()  # The hosts draw independently.
        want = variables(initializer, 1)
        assert abs(found[0].mean() - want[0].mean()) < 0.1 * want[0].std()
        assert abs(found[0].std() / want[0].std() - 1) < 0.1
    else:
        want = variables(initializer, seed)
    for one, other in list(zip(found, want, strict=True))[seed is None :]:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", BOUNDED)
def test_no_host_computes_the_other_rows(name):
    with tf.Graph().as_default() as graph:
        initializer = storage._unfolded(BOUNDED[name] or v1.truncated_normal_initializer())
        rows = initial_rows.rows_of(initializer([ROWS, DIM], dtype=tf.float32), 100, 200)
        used = v1.graph_util.extract_sub_graph(graph.as_graph_def(), [rows.op.name])
        made = [graph.get_operation_by_name(node.name) for node in used.node]
    sizes = [one.shape.num_elements() for op in made for one in op.outputs]
    assert rows.shape == [100, DIM] and max(sizes) < 101 * DIM + 4
