# SPDX-License-Identifier: Apache-2.0
"""Tables in shards: lookup and update as of one variable, initial values, names."""

import dataclasses

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from descriptors import OPTIMIZERS
from hypothesis import strategies as st

import estimator_emb as ee
from estimator_emb.spec.resolved import Table
from estimator_emb.step import update
from estimator_emb.tables import storage
from estimator_emb.tables.partition import Partition


def table_of(vocabulary, initializer=None, dimension=3):
    return Table("t", ee.TableConfig(vocabulary, dimension, initializer=initializer), ())


def run(shards, vocabulary, rows, gradients, parameters, start):
    """What is read before a step; weights and slots after it."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        initializer = tf.compat.v1.constant_initializer(start)
        made = storage.create(table_of(vocabulary, initializer), "t", parameters, False, shards)
        read = storage.read_table(made, tf.constant(rows))
        with tf.control_dependencies([read]):
            step = update.apply(
                made, parameters, tf.constant(0.5), [update.RowUpdate(rows, gradients)], 0.75
            )
        session.run(tf.compat.v1.global_variables_initializer())
        before, _ = session.run([read, step])
        assert len(made) == min(shards, vocabulary)
        everything = zip(*((one.weights, *one.slots) for one in made), strict=True)
        return before, [np.concatenate(session.run(list(parts))) for parts in everything]


BY_NAME = {one.name: one for one in OPTIMIZERS}
OF_SHARDS = [
    *(BY_NAME[name] for name in ("adagrad", "adam", "sgd")),
    dataclasses.replace(BY_NAME["adam"], parameters=ee.AdamParameters(0.5, lazy_adam=False)),
]


@pytest.mark.slow
@hypothesis.settings(deadline=None, max_examples=30)
@hypothesis.given(
    data=st.data(),
    vocabulary=st.integers(1, 12),
    shards=st.integers(1, 7),
    dtype=st.sampled_from([np.int32, np.int64]),
    optimizer=st.sampled_from(OF_SHARDS),
)
def test_shards_read_and_train_as_one_variable(data, vocabulary, shards, dtype, optimizer):
    rows = data.draw(st.lists(st.integers(0, vocabulary - 1), unique=True), "rows")
    rng = np.random.default_rng(len(rows))
    start = rng.normal(size=[vocabulary, 3]).astype(np.float32)
    gradients = rng.normal(size=[len(rows), 3]).astype(np.float32)
    parameters = optimizer.parameters
    case = vocabulary, np.array(rows, dtype), gradients, parameters, start
    before, after = run(shards, *case)
    np.testing.assert_array_equal(before, start[rows])

    expected = [start.astype(np.float64), *(np.full_like(start, one) for one in optimizer.start)]
    of_rows = np.zeros_like(start)
    of_rows[rows] = np.clip(gradients, -0.75, 0.75)
    moved = slice(None) if parameters.updates_untouched_rows else rows
    w, *slots = (one[moved] for one in expected)
    for array, values in zip(expected, optimizer.step(0.5, of_rows[moved], w, slots), strict=True):
        array[moved] = values
    assert not rows or not np.array_equal(after[0], start)
    for got, want in zip(after, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=3e-5)


WHOLE = np.arange(21, dtype=np.float32).reshape(7, 3)


def by_place(shape, dtype=tf.float32, partition_info=None):
    """As legacy programs write an initializer that knows of partitions."""
    assert partition_info.full_shape == [7, 3]
    start = partition_info.var_offset[0]
    return tf.constant(WHOLE[start : start + shape[0]], dtype)


@pytest.mark.parametrize(
    "initializer",
    [
        tf.compat.v1.constant_initializer(WHOLE),
        tf.constant_initializer(WHOLE),
        tf.constant_initializer(WHOLE.tolist()),
        lambda shape, dtype=tf.float32: tf.constant(WHOLE, dtype),
        by_place,
    ],
    ids=["v1 constant", "v2 constant", "list", "whole table", "partition_info"],
)
def test_initial_values_of_shards(initializer):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        made = storage.create(table_of(7, initializer), "t", None, False, 3)
        session.run(tf.compat.v1.global_variables_initializer())
        got = session.run([one.weights for one in made])
    assert [len(one) for one in got] == Partition(7, 3).sizes
    np.testing.assert_array_equal(np.concatenate(got), WHOLE)


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize(
    "kind",
    [
        tf.compat.v1.truncated_normal_initializer,
        tf.compat.v1.random_uniform_initializer,
        tf.random_normal_initializer,
        tf.keras.initializers.TruncatedNormal,
        tf.keras.initializers.GlorotUniform,
    ],
    ids=lambda kind: f"{kind.__module__.split('.')[0]} {kind.__name__}",
)
def test_shards_have_different_random_rows(kind, seed):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        made = storage.create(table_of(9, kind(seed=seed)), "t", None, False, 3)
        session.run(tf.compat.v1.global_variables_initializer())
        got = np.concatenate(session.run([one.weights for one in made]))
    assert len(np.unique(got)) == got.size


@pytest.mark.parametrize(
    "as_part, shards, names",
    [
        (False, 1, ["t", "t/Adagrad"]),
        (True, 1, ["t/part_0", "t/Adagrad/part_0"]),
        (False, 2, ["t/part_0", "t/Adagrad/part_0", "t/part_1", "t/Adagrad/part_1"]),
        (True, 2, ["t/part_0", "t/Adagrad/part_0", "t/part_1", "t/Adagrad/part_1"]),
    ],
)
def test_names_whatever_the_scope_has_set(as_part, shards, names):
    with tf.Graph().as_default():
        scope = tf.compat.v1.get_variable_scope()
        scope.set_partitioner(tf.compat.v1.fixed_size_partitioner(3))
        made = storage.create(table_of(5), "t", ee.AdagradParameters(0.1), as_part, shards)
        variables = [one for shard in made for one in (shard.weights, *shard.slots)]
        assert tf.compat.v1.global_variables() == variables
        assert tf.compat.v1.trainable_variables() == [one.weights for one in made]
    assert [one.op.name for one in variables] == names


def test_shards_lie_on_the_parameter_servers_with_their_slots():
    setter = tf.compat.v1.train.replica_device_setter(
        ps_tasks=2, worker_device="/job:worker/task:1"
    )
    with tf.Graph().as_default() as graph, tf.compat.v1.device(setter):
        made = storage.create(table_of(5), "t", ee.AdamParameters(0.1), False, 2)
        read = storage.read_table(made, tf.constant([1, 4]))
        gathers = [one.device for one in graph.get_operations() if one.type == "ResourceGatherNd"]
    servers = ["/job:ps/task:0", "/job:ps/task:1"]
    assert [one.weights.device for one in made] == servers
    assert all(one.shared for one in made)
    assert [[slot.device for slot in one.slots] for one in made] == [[one] * 2 for one in servers]
    assert gathers == servers
    assert read.device == "/job:worker/task:1"
