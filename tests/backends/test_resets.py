"""Sessions begin without running a step that resets tf.metrics or opens a writer of summaries."""

import functools

import harness
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import summary_ops_v2 as contrib_summary

import estimator_emb as ee

v1 = tf.compat.v1
SPEC = harness.table_spec(6, 2, ee.StochasticGradientDescentParameters(0.5))
ONES = np.ones([6, 1], np.float32)
input_fn = harness.endless(({"x": np.arange(6), "d": ONES}, ONES))


def metric_and_reset(value):
    """Returns a mean, and an op that resets all local variables after the mean was read."""
    mean, update = v1.metrics.mean(value, name="reset_mean")
    with tf.control_dependencies([update]):
        read = tf.identity(mean)
    with tf.control_dependencies([read]):
        return read, v1.variables_initializer(v1.local_variables())


def host_call(loss, folder):
    """Resets a metric, and has its own variable, table and writer of summaries."""
    writer = contrib_summary.create_file_writer(folder)
    with writer.as_default(), contrib_summary.always_record_summaries():
        contrib_summary.scalar("mean", tf.reduce_mean(loss), step=v1.train.get_global_step())
        written = v1.summary.all_v2_summary_ops()
    total = v1.Variable(
        lambda: tf.zeros([]) + tf.constant(1.0),
        trainable=False,
        collections=[v1.GraphKeys.LOCAL_VARIABLES],
        use_resource=True,
    )
    words = tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([7]))
    found = tf.lookup.StaticHashTable(words, 0).lookup(tf.constant("a"))
    return [*metric_and_reset(loss), total.assign_add(1.0), found, *written]


def metrics(loss):
    read, reset = metric_and_reset(loss)
    with tf.control_dependencies([reset]):
        return {"reset": (read, tf.identity(read))}


@pytest.mark.fast(1)
@pytest.mark.parametrize("with_tables", [False, True], ids=["without tables", "tables"])
@pytest.mark.parametrize("cores", [2, 1, None])
def test_session_with_a_reset_op_begins_without_running_the_step(cores, with_tables, tmp_path):
    """A session runs initializers when it begins. A reset op of a step runs the same initializers.

    In a step they wait for reads. At the beginning they must not: a read needs the step's input.
    train_op, host_call and eval_metrics each have a reset op.
    """

    def model_fn(features, labels, mode, params):
        given = features["x"] if with_tables else features["d"]
        loss = tf.reduce_mean(tf.square(v1.layers.dense(given, 1) - labels))
        of_host = functools.partial(host_call, folder=str(tmp_path / "summaries"))
        functions = {"host_call": of_host, "eval_metrics": metrics}
        fields = {name: (function, [loss[None]]) for name, function in functions.items()}
        spec = harness.minimized(mode, loss, 0.1, **fields)
        if mode == ee.ModeKeys.TRAIN:
            spec = spec._replace(train_op=tf.group(spec.train_op, *metric_and_reset(loss)))
        return spec

    spec = SPEC if with_tables else None
    fields = {"run": harness.SILENT, "tpu": {"iterations_per_loop": 2}}
    estimator = harness.estimator(model_fn, spec, tmp_path, num_shards=cores, **fields)
    steps = harness.Reads(v1.train.get_global_step)
    estimator.train(input_fn, max_steps=4, hooks=[steps])
    assert steps.seen == ([2, 4] if cores else [1, 2, 3, 4])  # Hooks see the ends of TPU loops.
    assert list((tmp_path / "summaries").glob("events*"))
    found = estimator.evaluate(input_fn, steps=2)
    assert found["global_step"] == 4 and np.isfinite(found["loss"])
