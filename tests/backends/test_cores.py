# SPDX-License-Identifier: Apache-2.0
"""What a program finds around it on the host in place of a TPU core."""

import threading

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import gen_tpu_ops
from tensorflow.python.tpu import tpu_function
from tensorflow.python.tpu.ops import tpu_ops
from tensorflow_estimator.python.estimator.tpu import tpu_context

from estimator_emb.backends.host_context import HostContext
from estimator_emb.step.cores import Cores

OPS = ("all_to_all", "collective_permute", "cross_replica_sum")


def replaceable():
    return {name: getattr(gen_tpu_ops, name) for name in OPS}


def shards():
    return tpu_function.get_tpu_context().number_of_shards


@pytest.fixture(autouse=True)
def given_back():
    """Whatever a test does, the ops are afterwards what they were, and there is no core."""
    before = replaceable()
    yield before
    assert replaceable() == before
    assert shards() is None


# The context


def test_context_of_an_input_fn():
    context = HostContext(call_from_input_fn=True)
    assert isinstance(context, tpu_context.TPUContext)
    assert context.current_input_fn_deployment() == ("/device:CPU:0", 0, 1, 1)
    assert context.current_host == 0
    assert (context.num_replicas, context.num_hosts, context.num_of_replicas_per_host) == (1, 1, 1)
    assert context.device_for_replica(0) == ("/device:CPU:0", 0)
    assert context.tpu_host_placement_function(0) == "/device:CPU:0"
    assert context.tpu_host_placement_function(host_id=0) == "/device:CPU:0"
    with pytest.raises(RuntimeError) as error:
        context.device_assignment  # noqa: B018
    assert str(error.value) == "This TPUContext instance must not be called from input_fn."


def test_context_of_a_model_fn():
    context = HostContext(call_from_input_fn=False)
    assert context.device_assignment is None
    assert (context.num_replicas, context.num_hosts, context.num_of_replicas_per_host) == (1, 1, 1)
    assert context.device_for_replica(0) == ("/device:CPU:0", 0)
    assert context.tpu_host_placement_function(host_id=0) == "/device:CPU:0"
    message = "This TPUContext instance must not be called from model_fn."
    with pytest.raises(RuntimeError) as error:
        context.current_input_fn_deployment()
    assert str(error.value) == message
    with pytest.raises(RuntimeError) as error:
        context.current_host  # noqa: B018
    assert str(error.value) == message


def test_context_answers_all_that_tensorflow_estimators_does():
    """Nothing reaches for the TPU system that is not there."""
    members = {name for name in vars(tpu_context.TPUContext) if not name.startswith("_")}
    assert members == {
        "current_host",
        "current_input_fn_deployment",
        "device_assignment",
        "device_for_replica",
        "num_hosts",
        "num_of_replicas_per_host",
        "num_replicas",
        "tpu_host_placement_function",
    }
    assert members - set(vars(HostContext)) == {"current_host"}


def test_the_devices_exist():
    context = HostContext(call_from_input_fn=False)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        with tf.device(context.tpu_host_placement_function(host_id=0)):
            assert session.run(tf.constant(3)) == 3


# The core


@pytest.mark.parametrize("shard_context, expected", [(True, 1), (False, None)])
def test_number_of_shards(shard_context, expected):
    assert shards() is None
    with Cores().running(shard_context):
        assert shards() == expected


def test_number_of_shards_is_that_of_the_thread():
    found = []
    with Cores().running(shard_context=True):
        thread = threading.Thread(target=lambda: found.append(shards()))
        thread.start()
        thread.join()
    assert found == [None]


@pytest.mark.parametrize("shard_context", [True, False])
def test_cross_replica_sum_of_one_core(shard_context):
    value = np.array([[1.5, -2.0], [3.0, 4.0]], np.float32)
    with tf.Graph().as_default() as graph:
        x = tf.constant(value)
        with Cores().running(shard_context):
            total = tf.compat.v1.tpu.cross_replica_sum(x, [[0]], name="total")
            (slope,) = tf.gradients(total * total, x)
        assert total.op.name == "total"
        assert {op.type for op in graph.get_operations()}.isdisjoint({"CrossReplicaSum"})
        with tf.compat.v1.Session() as session:
            np.testing.assert_array_equal(session.run(total), value)
            np.testing.assert_array_equal(session.run(slope), 2 * value)


def test_outside_the_op_is_in_the_graph():
    """What `one_core` is for."""
    with tf.Graph().as_default():
        total = tf.compat.v1.tpu.cross_replica_sum(tf.constant([1.0]), [[0]])
        assert total.op.type == "CrossReplicaSum"


def test_collective_permute_of_one_core():
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    with tf.Graph().as_default(), Cores().running(shard_context=True):
        permuted = tpu_ops.collective_permute(tf.constant(value), [[0, 0]], name="permuted")
        assert permuted.op.name == "permuted"
        with tf.compat.v1.Session() as session:
            np.testing.assert_array_equal(session.run(permuted), value)


def test_all_to_all_of_one_core():
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    with tf.Graph().as_default(), Cores().running(shard_context=True):
        exchanged = tpu_ops.all_to_all(
            tf.constant(value),
            concat_dimension=1,
            split_dimension=0,
            split_count=1,
            group_assignment=[[0]],
            name="exchanged",
        )
        assert exchanged.op.name == "exchanged"
        with tf.compat.v1.Session() as session:
            np.testing.assert_array_equal(session.run(exchanged), value)


@pytest.mark.parametrize("shard_context", [True, False])
@pytest.mark.parametrize("reduction", ["MEAN", "SUM"])
def test_cross_shard_optimizer_takes_the_plain_step(shard_context, reduction):
    start, goal = np.array([1.0, -2.0], np.float32), np.array([3.0, 0.5], np.float32)
    with tf.Graph().as_default():
        weights = tf.compat.v1.get_variable("weights", initializer=start)
        loss = tf.reduce_sum(tf.square(weights - goal))
        with Cores().running(shard_context):
            optimizer = tf.compat.v1.tpu.CrossShardOptimizer(
                tf.compat.v1.train.GradientDescentOptimizer(0.125),
                reduction=getattr(tf.compat.v1.losses.Reduction, reduction),
            )
            train_op = optimizer.minimize(loss)
        with tf.compat.v1.Session() as session:
            session.run(weights.initializer)
            session.run(train_op)
            np.testing.assert_array_equal(session.run(weights), start - 0.125 * 2 * (start - goal))


def test_the_ops_are_given_back(given_back):
    with Cores().running(shard_context=True):
        inside = replaceable()
        assert all(inside[name] is not given_back[name] for name in OPS)


def test_the_ops_are_given_back_after_an_exception():
    with pytest.raises(KeyError):
        with Cores().running(shard_context=True):
            raise KeyError("in model_fn")


@pytest.mark.parametrize("shard_context", [True, False])
def test_nested(shard_context):
    """TensorFlow refuses it with shards; the outer core goes on."""
    with Cores().running(shard_context=True):
        inside = replaceable()
        if shard_context:
            with pytest.raises(NotImplementedError) as error:
                with Cores().running(shard_context=True):
                    raise AssertionError("must not get here")
            # TensorFlow's versions go on differently.
            assert str(error.value).startswith("tpu_shard_context cannot be nested")
        else:
            with Cores().running(shard_context=False):
                assert replaceable() == inside
                assert shards() == 1
        assert replaceable() == inside
        assert shards() == 1


@pytest.mark.parametrize("shard_context", [True, False])
def test_threads_do_not_see_each_other(shard_context):
    """Two estimators in two threads, both in their model_fn: each has its own cores."""
    both, done = threading.Barrier(2, timeout=60), threading.Event()
    found = {}

    def summed(count):
        with tf.Graph().as_default() as graph:
            cores = Cores(count)
            with cores.running(shard_context):
                both.wait()
                tf.compat.v1.tpu.cross_replica_sum(
                    tf.constant([1.0]), [list(range(count))], name="total"
                )
                both.wait()
                found[count] = shards(), cores.has_collectives
                done.wait(60)
            assert "CrossReplicaSum" not in {op.type for op in graph.get_operations()}

    threads = [threading.Thread(target=summed, args=[count]) for count in (1, 2)]
    for thread in threads:
        thread.start()
    while len(found) < 2 and all(thread.is_alive() for thread in threads):
        threads[0].join(0.01)
    with tf.Graph().as_default():  # A third thread, outside of every model_fn.
        total = tf.compat.v1.tpu.cross_replica_sum(tf.constant([1.0]), [[0]])
        assert total.op.type == "CrossReplicaSum"
    done.set()
    for thread in threads:
        thread.join()
    assert found == {count: (count if shard_context else None, count > 1) for count in (1, 2)}
