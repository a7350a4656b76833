"""What a training leaves out, or does without effect, is named with its line, once.

Stock tensorflow-estimator trains such models without a message. test_correct_programs.py has models
that leave something out on purpose. `make` returns an estimator of a model of (x, labels), which
returns its loss. `build_graph` ends a call where its session would open. `told` returns our log.
"""

import re

import harness
import numpy as np
import pytest
import tensorflow as tf
from small_programs import build_graph, check, each_kind, input_fn, linear, make, mse, told

import estimator_emb as ee

v1 = tf.compat.v1
layers = v1.layers
pytestmark = pytest.mark.usefixtures("installed")
PENALTY = tf.keras.regularizers.l2(0.1)


def lost_penalty(x, labels):
    return mse(layers.dense(x, 1, kernel_regularizer=PENALTY), labels)


def lost_penalty_of_variable(x, labels):
    return mse(x @ v1.get_variable("w", [3, 1], regularizer=PENALTY), labels)


def by_argmax(x, labels):
    chosen = tf.argmax(layers.dense(x, 3, name="cut"), 1)
    return mse(layers.dense(tf.one_hot(chosen, 3), 1), labels)


def by_python(x, labels):
    hidden = layers.dense(x, 3, name="cut")
    outside = v1.py_func(lambda one: one, [hidden], tf.float32)
    return mse(layers.dense(tf.reshape(outside, [4, 3]), 1), labels)


def undropped(x, labels):
    return mse(layers.dense(layers.dropout(layers.dense(x, 3), 0.5), 1), labels)


def unnormalized(x, labels):
    normalized = layers.batch_normalization(
        layers.dense(x, 3),
        momentum=0.9,
    )
    return mse(layers.dense(normalized, 1), labels)


def unnormalized_images(x, labels):
    x = layers.conv2d(tf.reshape(x, [4, 3, 1, 1]), 2, 1)
    return mse(layers.dense(layers.flatten(layers.batch_normalization(x)), 1), labels)


def layer_of_keras(x, labels):
    return linear(tf.keras.layers.Dropout(0.5)(x), labels)


def negated_phase(x, labels):
    """Depends on Keras's learning phase by another op, as some layers do."""
    infers = tf.logical_not(tf.keras.backend.learning_phase())
    return linear(tf.cond(infers, lambda: x, lambda: x * 2.0), labels)


def model_of_keras(x, labels):
    dense = tf.keras.layers.Dense(3, input_shape=[3])
    return linear(tf.keras.Sequential([dense, tf.keras.layers.Dropout(0.5)])(x), labels)


def without_updates(x, labels):
    return linear(layers.batch_normalization(x, training=True, name="bn"), labels)


def without_updates_of_keras(x, labels):
    return linear(tf.keras.layers.BatchNormalization(name="bn")(x, training=True), labels)


def without_own_average(x, labels):
    mean = v1.get_variable("mean", [3], trainable=False)
    mean.assign_sub(0.5 * (mean - tf.reduce_mean(x, 0)))
    return linear(x, labels)


def without_average_of_training(x, labels):
    state = v1.get_variable("state", [3], trainable=False)
    tf.train.ExponentialMovingAverage(0.5).apply([state])
    return linear(x, labels)


def summary_of_v2(x, labels):
    tf.summary.scalar("mean", tf.reduce_mean(x))
    return linear(x, labels)


def printed(x, labels):
    tf.print("x", x)
    return linear(x, labels)


def asserted(x, labels):
    tf.debugging.assert_greater(x, 100.0)
    return linear(x, labels)


INFERENCE = "A layer that is called without training= runs in inference mode"
UNCHANGED = "No step of this training updates "
LEFT_OUT = {
    lost_penalty: "The regularization losses, such as 'dense/kernel/Regularizer/mul', are part of",
    lost_penalty_of_variable: "The regularization losses, such as",
    by_argmax: "No gradient reaches cut/kernel, cut/bias, although the loss",
    by_python: "No gradient reaches cut/kernel, cut/bias, although the loss",
    **dict.fromkeys((undropped, unnormalized, unnormalized_images), INFERENCE),
    **dict.fromkeys((layer_of_keras, negated_phase, model_of_keras), INFERENCE),
    without_updates: f"{UNCHANGED}bn/moving_mean, bn/moving_variance: ",
    without_updates_of_keras: f"{UNCHANGED}bn/moving_mean, bn/moving_variance: ",
    without_own_average: f"{UNCHANGED}mean: ",
    without_average_of_training: f"{UNCHANGED}state/ExponentialMovingAverage: ",
    summary_of_v2: "A tf.summary of TensorFlow 2 writes nothing in a model_fn",
    printed: "tf.print prints nothing in a model_fn",
    asserted: "An assertion checks nothing in a model_fn",
}
"""Model -> the beginning of its warning."""


def test_the_checks_of_models_name_what_each_leaves_out(caplog, assert_recorded):
    for build, begin in LEFT_OUT.items():
        caplog.clear()
        check(build)
        (line,) = harness.said(caplog)
        assert line.startswith(begin) and f", in {build.__name__}: " in line
        assert_recorded(line.partition(" The op '")[0])


@pytest.mark.fast(1)
@each_kind
@pytest.mark.parametrize("build", LEFT_OUT, ids=lambda one: one.__name__)
def test_what_a_training_leaves_out_is_named_once(kind, build, tmp_path, caplog):
    if kind == "emulated" and build is by_python:
        pytest.skip("A TPU runs no Python.")
    estimator, run = make(kind, tmp_path, build), build_graph if kind == "plain" else harness.run
    for call in ("train", "train", "evaluate"):
        run(call, estimator, input_fn, steps=1)
    (line,) = told(caplog)  # Once, though three graphs leave it out.
    assert line.startswith(LEFT_OUT[build])
    assert re.search(rf"made by .*test_left_out.py, line \d+, in {build.__name__}: ", line)


@pytest.mark.fast(2)
@pytest.mark.parametrize("cores", [None, 1, 2])
def test_an_update_behind_a_table_that_no_step_runs_is_named(cores, tmp_path, caplog):
    """The layer's input, and so its update, depends on the activation of a table."""

    def model_fn(features, labels, mode, params):
        normalized = layers.batch_normalization(features["x"], training=True, name="bn")
        return harness.minimized(mode, tf.reduce_sum(normalized))

    spec = harness.table_spec(4, 2, ee.StochasticGradientDescentParameters(0.5))
    estimator = harness.estimator(model_fn, spec, tmp_path, num_shards=cores)
    batch = ({"x": np.arange(4)}, np.ones([4, 1], np.float32))
    build_graph("train", estimator, harness.input_fn_of([batch]), steps=1)
    (line,) = harness.said(caplog)
    assert line.startswith(LEFT_OUT[without_updates])


@each_kind
def test_the_op_that_blocks_all_gradients_is_named(kind, tmp_path, caplog):
    def build(x, labels):
        return mse(tf.cast(tf.argmax(layers.dense(x, 3), 1), tf.float32), labels)

    message = harness.refusal(ValueError, make(kind, tmp_path, build).train, input_fn, max_steps=1)
    assert message.startswith("No gradients provided for any variable")
    (line,) = harness.said(caplog)
    assert line.startswith("No gradient reaches dense/kernel, dense/bias, although")
    assert "the op ArgMax has no" in line


def given_embeddings(x, labels):
    layer = tf.keras.layers.Embedding(10, 1, weights=[np.ones([10, 1])], name="given")
    return linear(tf.squeeze(layer(tf.cast(x, tf.int32)), -1), labels)


def given_kernel(x, labels):
    layer = tf.keras.layers.Dense(3, use_bias=False, name="given")
    y = layer(x)
    layer.set_weights([np.eye(3)])
    return linear(y, labels)


@each_kind
@pytest.mark.parametrize(
    "build, name", [(given_embeddings, "given/embeddings"), (given_kernel, "given/kernel")]
)
def test_keras_weights_set_in_another_session_are_refused(kind, build, name, tmp_path):
    message = harness.refusal(ValueError, make(kind, tmp_path, build).train, input_fn, max_steps=1)
    assert message.startswith(f"model_fn gives values to {name} that no training gets")
    assert f", in {build.__name__}: " in message
