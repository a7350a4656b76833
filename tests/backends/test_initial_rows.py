"""Parts of tables on several hosts begin with the rows of one process, whatever the initializer."""

import types

import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.backends.hosts import initial_rows
from estimator_emb.backends.hosts.agreement import Agreement
from estimator_emb.engine.alone import ALONE
from estimator_emb.engine.tables import storage
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
    "stateless": lambda shape, dtype: 2.0 - tf.random.stateless_truncated_normal(shape, [5, 6]),
    "of the place": of_place,
}
"""Initializers of which a host computes only its own rows."""
WHOLE = {
    "values": v1.constant_initializer(np.arange(ROWS * DIM, dtype=np.float32).reshape(ROWS, DIM)),
    "orthogonal": v1.orthogonal_initializer(seed=1),
    "identity": v1.initializers.identity(),
    "numpy": lambda shape, dtype: np.float32(np.random.RandomState(4).normal(size=shape)),
    "float64": lambda shape, dtype: tf.cast(tf.random.normal(shape, 0, 1, tf.float64, 1), dtype),
}
"""Initializers of which each host computes the whole table, and keeps its own rows."""

UNSEEDED = ("default", "normal", "of the shape", "own")
SOME = ("default", "zeros", "normal of seed", "own", "of the place", "values", "orthogonal")


def begun(names, seed, host):
    """Returns the values and slots of a table for each initializer, or of a host's part of each."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(seed)
        made = {}
        for name in names:
            config = ee.TableConfig(ROWS, DIM, (BOUNDED | WHOLE)[name])
            table = Table(name, config, (), optimizer=ee.AdagradParameters(0.1))
            (variables,) = storage.create(table, name.replace(" ", "_"), True, host=host)
            made[name] = [variables.weights, *variables.slots]
        session.run(v1.global_variables_initializer())
        return session.run(made)


@pytest.mark.parametrize(
    "seed, names",
    [(0, SOME), *(pytest.param(one, BOUNDED | WHOLE, marks=pytest.mark.slow) for one in (0, None))],
    ids=["some", "seed", "no seed"],
)
def test_hosts_begin_with_the_rows_of_one_process(seed, names):
    """If neither the graph (`seed`) nor the initializer has a seed, only their spread is equal."""
    want = begun(names, seed, ALONE)  # By name, [weights, accumulators of Adagrad].
    count = 2 if names is SOME else 3
    # The hosts of a training. Nothing runs on them here.
    hosts = [Agreement(types.SimpleNamespace(number=i, count=count)) for i in range(count)]
    parts = [begun(names, seed, host) for host in hosts]
    for name, values in want.items():
        found = [np.concatenate(one) for one in zip(*(part[name] for part in parts), strict=True)]
        if seed is None and name in UNSEEDED:
            first, second = (part[name][0][:300] for part in parts[:2])
            assert not (first == second).all(1).any(), name  # The hosts draw independently.
            assert abs(found[0].std() / values[0].std() - 1) < 0.1, name  # Chance explains 3 %.
            found, values = found[1:], values[1:]  # The slots are equal.
        for one, other in zip(found, values, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)


@pytest.mark.parametrize("name", BOUNDED)
def test_no_host_computes_the_other_rows(name):
    """No tensor of the graph that makes rows 100 to 199 is much larger than these 100 rows."""
    with tf.Graph().as_default() as graph:
        # `_unfolded` replaces an initializer that fills with a number, as for every table.
        initializer = storage._unfolded(BOUNDED[name] or v1.truncated_normal_initializer())
        rows = initial_rows.rows_of(initializer([ROWS, DIM], dtype=tf.float32), 100, 200)
        used = v1.graph_util.extract_sub_graph(graph.as_graph_def(), [rows.op.name])
        made = [graph.get_operation_by_name(node.name) for node in used.node]
    sizes = [one.shape.num_elements() for op in made for one in op.outputs]
    # Random numbers are drawn by fours: up to 3 more at each end.
    assert rows.shape == [100, DIM] and max(sizes) < 101 * DIM + 4
