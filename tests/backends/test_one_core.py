"""Stand-ins on the host for a TPU core: its context, its collectives, and its isolation."""

import contextlib
import threading

import harness
import numpy as np
import processes
import pytest
import tensorflow as tf
from tensorflow.python.ops import gen_tpu_ops
from tensorflow.python.tpu import tpu_function
from tensorflow.python.tpu.ops import tpu_ops
from tensorflow_estimator.python.estimator.tpu import tpu_context

from estimator_emb.backends.local import HostContext
from estimator_emb.engine.cores import Cores

OPS = ("all_to_all", "collective_permute", "cross_replica_sum")


def replaceable():
    return {name: getattr(gen_tpu_ops, name) for name in OPS}


def shards():
    return tpu_function.get_tpu_context().number_of_shards


@pytest.fixture(autouse=True)
def given_back():
    """After each test, the ops are restored and no core is active."""
    before = replaceable()
    yield before
    assert replaceable() == before
    assert shards() is None


# The context


@pytest.mark.parametrize("of_input", [True, False])
def test_host_context_describes_one_core(of_input):
    context = HostContext(call_from_input_fn=of_input)
    assert isinstance(context, tpu_context.TPUContext)
    assert (context.num_replicas, context.num_hosts, context.num_of_replicas_per_host) == (1, 1, 1)
    assert context.device_for_replica(0) == ("/device:CPU:0", 0)
    assert context.tpu_host_placement_function(0) == "/device:CPU:0"
    assert context.tpu_host_placement_function(host_id=0) == "/device:CPU:0"
    of_model_fn = {"device_assignment": lambda: context.device_assignment}
    of_input_fn = {
        "current_host": lambda: context.current_host,
        "current_input_fn_deployment": context.current_input_fn_deployment,
    }
    here, elsewhere = (of_input_fn, of_model_fn) if of_input else (of_model_fn, of_input_fn)
    values = {"current_host": 0, "current_input_fn_deployment": ("/device:CPU:0", 0, 1, 1)}
    assert {name: get() for name, get in here.items()} == (
        values if of_input else {"device_assignment": None}
    )
    place = "input_fn" if of_input else "model_fn"
    for get in elsewhere.values():
        message = f"This TPUContext instance must not be called from {place}."
        assert harness.refusal(RuntimeError, get) == message


# The core


@pytest.mark.parametrize("shard_context", [True, False])
@pytest.mark.parametrize(
    "op, arguments",
    [
        (tf.compat.v1.tpu.cross_replica_sum, {"group_assignment": [[0]]}),
        (tpu_ops.collective_permute, {"source_target_pairs": [[0, 0]]}),
        (
            lambda x, groups, name: tpu_ops.all_to_all(x, 1, 0, 1, groups, name),
            {"groups": [[0]]},
        ),
    ],
)
def test_collectives_are_identities_on_one_core(op, arguments, shard_context):
    value = np.array([[1.5, -2.0], [3.0, 4.0]], np.float32)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.constant(value)
        with Cores().running(shard_context):
            result = op(x, **arguments, name="result")
            (slope,) = tf.gradients(result * result, x)
        assert result.op.name == "result"
        np.testing.assert_array_equal(session.run(result), value)
        np.testing.assert_array_equal(session.run(slope), 2 * value)


def test_ops_are_restored_after_an_exception(given_back):
    with pytest.raises(KeyError):
        with Cores().running(shard_context=True):
            inside = replaceable()
            assert all(inside[name] is not given_back[name] for name in OPS)
            raise KeyError("in model_fn")


@pytest.mark.parametrize("shard_context", [True, False])
def test_nested_cores(shard_context):
    """TensorFlow refuses nested shard contexts. The outer core stays active."""
    with Cores().running(shard_context=True):
        inside = replaceable()
        refused = pytest.raises(NotImplementedError, match="^tpu_shard_context cannot be nested")
        with refused if shard_context else contextlib.nullcontext():
            with Cores().running(shard_context):
                assert not shard_context and replaceable() == inside
                assert shards() == 1
        assert replaceable() == inside
        assert shards() == 1


@pytest.mark.parametrize("shard_context", [True, False])
def test_cores_are_isolated_between_threads(shard_context):
    """Two estimators run model_fn in two threads, each with its own cores."""
    both, done = threading.Barrier(2, timeout=processes.HANGS), threading.Event()
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
                found[count] = shards(), bool(cores.collectives)
                done.wait(processes.HANGS)
            assert "CrossReplicaSum" not in {op.type for op in graph.get_operations()}

    threads = [threading.Thread(target=summed, args=[count]) for count in (1, 2)]
    for thread in threads:
        thread.start()
    while len(found) < 2 and all(thread.is_alive() for thread in threads):
        threads[0].join(0.01)
    with tf.Graph().as_default():  # A third thread, outside any model_fn.
        total = tf.compat.v1.tpu.cross_replica_sum(tf.constant([1.0]), [[0]])
        assert total.op.type == "CrossReplicaSum"
    done.set()
    for thread in threads:
        thread.join()
    assert found == {count: (count if shard_context else None, count > 1) for count in (1, 2)}
