"""Model parts that do not train and global steps that count wrong are reported.

Stock tensorflow-estimator trains such models without a message.
"""

import re

import harness
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.platform import tf_logging

import estimator_emb as ee
from estimator_emb.reporting import progress

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")
X = np.array([[1.0, 2, 3], [4, 6, 5], [2, 0, 1], [1, 1, 9]], np.float32)
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("local", "emulated")]
of_each_kind = pytest.mark.parametrize("kind", ["plain", *SLOW])
off_a_tpu = pytest.mark.parametrize("kind", ["plain", SLOW[0]])


def input_fn(params=None):
    return tf.data.Dataset.from_tensors(({"x": X}, X[:, :1])).repeat()


def minimize(loss, step=True):
    optimizer = v1.train.GradientDescentOptimizer(0.125)
    return optimizer.minimize(loss, v1.train.get_global_step() if step else None)


def make(kind, model_dir, inputs=lambda x: x, train_op=minimize, **fields):
    """Returns an estimator of a linear model of `inputs(x)`, trained by `train_op(loss)`."""

    def model(features, labels, mode, spec):
        w = v1.get_variable("w", [3, 1], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(inputs(features["x"]) @ w - labels))
        if mode != ee.ModeKeys.TRAIN:
            return spec(mode, loss=loss)
        return spec(mode, loss=loss, train_op=train_op(loss), **fields)

    return harness.of_kind(kind, model, model_dir, run={})


def said(caplog):
    """Returns our warnings, without the code lines at their ends."""
    lines = [line for line in harness.said(caplog) if "step" in line and "warning" not in line]
    return [re.sub(r" The op .*", "", line) for line in lines if not line.startswith("step ")]


def v1_function(x):
    return v1.layers.batch_normalization(x, training=True, name="bn")


def keras_layer(x):
    return tf.keras.layers.BatchNormalization(name="bn")(x, training=True)


def own_average(x):
    mean = v1.get_variable("mean", [3], trainable=False)
    mean.assign_sub(0.5 * (mean - tf.reduce_mean(x, 0)))
    return x


def average_of_training(x):
    state = v1.get_variable("state", [3], trainable=False)
    tf.train.ExponentialMovingAverage(0.5).apply([state])
    return x


NO_STEP_UPDATES = "No step of this training updates "
MOVING = f"{NO_STEP_UPDATES}bn/moving_mean, bn/moving_variance"


@pytest.mark.fast(2)
@of_each_kind
@pytest.mark.parametrize(
    "inputs, first, remedy",
    [
        (v1_function, MOVING, "GraphKeys.UPDATE_OPS))."),
        (keras_layer, MOVING, "get_updates_for too."),
        (own_average, f"{NO_STEP_UPDATES}mean", "tf.group(train_op, ...)."),
        (average_of_training, f"{NO_STEP_UPDATES}state/ExponentialMovingAverage", "..."),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_an_update_that_no_step_runs_is_named_once(
    kind, inputs, first, remedy, tmp_path, caplog, same_message
):
    estimator = make(kind, tmp_path, inputs)
    estimator.train(input_fn, max_steps=1)
    estimator.train(input_fn, max_steps=2)
    (message,) = said(caplog)
    assert message.startswith(f"{first}: ") and remedy in message
    if kind == "plain":
        same_message(message)
    (line,) = [line for line in harness.said(caplog) if line.startswith(message)]
    begin = inputs.__code__.co_firstlineno
    places = f"({begin + 1}|{begin + 2})"
    assert re.search(rf"test_training_faults.py, line {places}, in {inputs.__name__}: ", line)


def with_collection(loss):
    return tf.group(minimize(loss), v1.get_collection(v1.GraphKeys.UPDATE_OPS))


def after_collection(loss):
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        return minimize(loss)


@of_each_kind
@pytest.mark.parametrize("train_op", [with_collection, after_collection])
def test_the_advice_mends_batch_normalization(kind, train_op, tmp_path, caplog):
    estimator = make(kind, tmp_path, v1_function, train_op)
    estimator.train(input_fn, max_steps=1)
    assert said(caplog) == []
    mean = 0.01 * X.mean(0, dtype=np.float64)
    np.testing.assert_allclose(estimator.get_variable_value("bn/moving_mean"), mean, rtol=1e-5)


def bare(keras, layer):
    return layer


def functional(keras, layer):
    x = keras.Input([3])
    return keras.Model(x, layer(x))


def subclassed(keras, layer):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def call(self, x, training=None):
            return self.layer(x, training=training)

    return Own()


@pytest.mark.fast(2)
@of_each_kind
@pytest.mark.parametrize("keras", [tf.keras, v1.keras], ids=["v2", "v1"])
@pytest.mark.parametrize("make_model", [functional, subclassed, bare])
def test_the_advice_mends_keras_batch_normalization(kind, keras, make_model, tmp_path, caplog):
    for mends in (False, True):
        updates = []

        def inputs(x, updates=updates):
            model = make_model(keras, keras.layers.BatchNormalization(name="bn"))
            y = model(x, training=True)
            updates.append(model.get_updates_for(x))
            return y

        def train_op(loss, updates=updates, mends=mends):
            return tf.group(minimize(loss), updates if mends else [])

        caplog.clear()
        estimator = make(kind, tmp_path / str(mends), inputs, train_op)
        estimator.train(input_fn, max_steps=1)
        assert len([line for line in said(caplog) if "get_updates_for" in line]) == (not mends)
        (name,) = (one for one in estimator.get_variable_names() if one.endswith("moving_mean"))
        mean = 0.01 * X.mean(0, dtype=np.float64) * mends
        np.testing.assert_allclose(estimator.get_variable_value(name), mean, rtol=1e-5)


@pytest.mark.fast(2)
@pytest.mark.parametrize("cores", [None, 1, 2])
def test_an_update_behind_a_table_that_no_step_runs_is_named(cores, tmp_path, caplog):
    def model_fn(features, labels, mode, params):
        normalized = v1_function(features["x"])
        return harness.minimized(mode, tf.reduce_sum(normalized))

    spec = harness.table_spec(4, 2, ee.StochasticGradientDescentParameters(0.5))
    estimator = harness.estimator(model_fn, spec, tmp_path, num_shards=cores)
    batch = ({"x": np.arange(4)}, np.ones([4, 1], np.float32))
    estimator.train(harness.input_fn_of([batch]), steps=1)
    assert [line.partition(": ")[0] for line in said(caplog)] == [MOVING]


@of_each_kind
def test_intended_unrun_updates_cause_no_warning(kind, tmp_path, caplog):
    """Updates of a metric, by a feed, by the program's saver, and in a branch that a step runs."""

    def inputs(x):
        v1.metrics.mean(x)
        v1.get_variable("start", [3], trainable=False).assign(v1.placeholder(tf.float32, [3]))
        seen = v1.get_variable("seen", [], trainable=False)
        counted = tf.cond(tf.reduce_sum(x) > 0, lambda: seen.assign_add(1.0), seen.read_value)
        v1.train.Saver()
        with tf.control_dependencies([counted]):
            return tf.identity(x)

    make(kind, tmp_path, inputs).train(input_fn, max_steps=1)
    assert said(caplog) == []


@off_a_tpu
def test_updates_run_by_a_hook_cause_no_warning(kind, tmp_path, caplog):
    class Runs(v1.train.SessionRunHook):
        def before_run(self, run_context):
            ops = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
            return v1.train.SessionRunArgs(ops)

    make(kind, tmp_path, v1_function).train(input_fn, hooks=[Runs()], max_steps=1)
    assert said(caplog) == []


# The global step.


def without_step(loss):
    return minimize(loss, step=False)


def in_no_train_op(loss):
    minimize(loss)
    return minimize(loss, step=False)


def of_keras(loss):
    optimizer = tf.keras.optimizers.legacy.SGD(0.125)
    return tf.group(*optimizer.get_updates(loss, v1.trainable_variables()))


NO_STEP = "The train_op of model_fn does not increase the global step."
STOCK_SAYS = "It seems that global step (tf.train.get_global_step) has not been increased."


def of_stock(caplog):
    return [line for line in caplog.messages if line.startswith(STOCK_SAYS)]


@pytest.mark.fast(4)
@of_each_kind
@pytest.mark.parametrize("train_op", [without_step, of_keras, in_no_train_op])
@pytest.mark.parametrize("asked", [{"max_steps": 3}, {"steps": 3}, {}])
def test_a_train_op_that_counts_no_steps_trains_with_a_warning(
    kind, train_op, asked, tmp_path, caplog, monkeypatch
):
    """Stock's warning, which repeats with every step, is hidden after ours."""
    if kind == "emulated" and train_op is in_no_train_op:
        pytest.skip("An emulated TPU cannot tell which ops of the graph its loop runs.")
    if kind == "emulated" and not asked:
        pytest.skip("A training on a TPU needs steps or max_steps.")
    monkeypatch.setattr(tf_logging, "_log_counter_per_token", {})
    caplog.set_level("INFO", "estimator_emb")
    estimator = make(kind, tmp_path, train_op=train_op)
    try:
        estimator.train(lambda params=None: input_fn().take(9), **asked)
    except tf.errors.OutOfRangeError:
        assert kind == "emulated"  # As on a TPU.
    (message,) = [line for line in said(caplog) if "train_op" in line]
    assert message.startswith(NO_STEP)
    assert not of_stock(caplog)
    ended = [line for line in harness.said(caplog) if "the input ended" in line]
    advice = "No step raised the global step, by which steps and max_steps count."
    assert [line.endswith(advice) for line in ended] == [True] * bool(asked)
    if kind != "emulated":  # As in stock, the last checkpoint is the first.
        assert estimator.get_variable_value("global_step") == 0
        assert np.abs(estimator.get_variable_value("w")).max() == 0


def in_a_branch_that_never_runs(loss):
    updated = tf.cond(loss < 0, lambda: minimize(loss), tf.no_op)
    return tf.group(updated)


@off_a_tpu
def test_a_branch_that_never_raises_the_step_is_shown(kind, tmp_path, caplog, monkeypatch):
    """Stock's warning shows, and the progress line says it."""
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(tf_logging, "_log_counter_per_token", {})
    caplog.set_level("INFO", "estimator_emb")
    estimator = make(kind, tmp_path, train_op=in_a_branch_that_never_runs)
    estimator.train(lambda params=None: input_fn().take(9), max_steps=3)
    assert len(of_stock(caplog)) == 5
    lines = [line for line in harness.said(caplog) if line.startswith("step 0 of 3, ")]
    assert lines[-1].endswith(", no step raises the global step")


def two_optimizers(loss):
    return tf.group(minimize(loss), minimize(loss))


def by_two(loss):
    with tf.control_dependencies([minimize(loss, step=False)]):
        return v1.train.get_global_step().assign_add(2).op


@pytest.mark.fast(1)
@off_a_tpu
@pytest.mark.parametrize("train_op", [two_optimizers, by_two])
def test_a_step_counted_twice_is_logged(kind, train_op, tmp_path, caplog):
    batches = []
    count = harness.AfterStep(lambda: batches.append(1))
    estimator = make(kind, tmp_path, train_op=train_op)
    estimator.train(input_fn, hooks=[count], max_steps=10)
    assert (len(batches), harness.last_step(tmp_path)) == (5, 10)
    estimator.train(input_fn, hooks=[count], steps=6)
    assert (len(batches), harness.last_step(tmp_path)) == (8, 16)
    (message,) = said(caplog)
    assert message.startswith(
        "Each step of the training raises the global step by 2, so that steps, max_steps and what "
        "else counts by it come 2 times as soon. It is raised in "
    )
    maker = train_op if train_op is by_two else minimize
    line = maker.__code__.co_firstlineno + 2
    assert f"test_training_faults.py, line {line}, in {maker.__name__}: " in message
    assert message.endswith("Pass global_step to one minimize or apply_gradients only.")


@off_a_tpu
def test_branches_of_a_step_count_once(kind, tmp_path, caplog):
    def train_op(loss):
        step = v1.train.get_global_step()
        updates = minimize(loss, step=False)
        with tf.control_dependencies([updates]):
            return tf.cond(step % 2 > 0, lambda: step.assign_add(1), lambda: step.assign_add(1)).op

    make(kind, tmp_path, train_op=train_op).train(input_fn, max_steps=3)
    assert said(caplog) == of_stock(caplog) == []
    assert harness.last_step(tmp_path) == 3


# Keras layers called without `training`.


def dropped(x):
    return tf.keras.layers.Dropout(0.5)(x)


def in_a_model(x):
    layers = [tf.keras.layers.Dense(3, input_shape=[3]), tf.keras.layers.Dropout(0.5)]
    return tf.keras.Sequential(layers)(x)


def called_by_default(caplog):
    return [line for line in harness.said(caplog) if "without training=" in line]


@pytest.mark.fast(2)
@of_each_kind
@pytest.mark.parametrize("inputs", [dropped, in_a_model])
def test_a_layer_called_without_training_is_named_once(kind, inputs, tmp_path, caplog):
    estimator = make(kind, tmp_path, inputs)
    for last in (1, 2):
        estimator.train(input_fn, max_steps=last)
    estimator.evaluate(input_fn, steps=1)
    (line,) = called_by_default(caplog)
    assert line.startswith("A layer that is called without training= runs in inference mode")
    assert re.search(
        rf"was made by .*test_training_faults.py, line \d+, in {inputs.__name__}", line
    )


@of_each_kind
def test_layers_with_an_intended_mode_cause_no_warning(kind, tmp_path, caplog):
    layers = tf.keras.layers

    def inputs(x):
        x = layers.Dropout(0.5)(x, training=True)
        x = layers.Dropout(0.5)(x, training=False)
        x = layers.BatchNormalization()(layers.Dense(3)(x), training=True)
        x = v1.layers.dropout(v1.layers.batch_normalization(x, training=False), training=False)
        x = layers.Dropout(0.0)(layers.Dense(3)(x))
        return layers.BatchNormalization(trainable=False)(x)

    make(kind, tmp_path, inputs).train(input_fn, max_steps=1)
    assert called_by_default(caplog) == []


@of_each_kind
def test_layers_of_computed_features_cause_no_warning(kind, tmp_path, caplog):
    """No optimizer trains the model that computes features."""
    make(kind, tmp_path, in_a_model, of_the_rest).train(input_fn, max_steps=1)
    assert called_by_default(caplog) == []


@of_each_kind
@pytest.mark.parametrize("phase", [0, 1])
def test_layers_of_a_learning_phase_cause_no_warning(kind, phase, tmp_path, caplog):
    def inputs(x):
        tf.keras.backend.set_learning_phase(phase)
        return in_a_model(x)

    make(kind, tmp_path, inputs).train(input_fn, max_steps=1)
    assert called_by_default(caplog) == []


def of_the_rest(loss):
    (w,) = (one for one in v1.trainable_variables() if one.op.name == "w")
    return v1.train.GradientDescentOptimizer(0.125).minimize(
        loss, v1.train.get_global_step(), var_list=[w]
    )


# Calls of TensorFlow 2.


WITHOUT_EFFECT = {
    "A tf.summary of TensorFlow 2 writes nothing in a model_fn": (
        lambda x: tf.summary.scalar("mean", tf.reduce_mean(x))
    ),
    "tf.print prints nothing in a model_fn": lambda x: tf.print("x", x),
    "An assertion checks nothing in a model_fn": lambda x: tf.debugging.assert_greater(x, 100.0),
}
"""The beginning of a warning -> a call."""


def of_calls(caplog):
    begins = tuple(WITHOUT_EFFECT)
    return [line for line in harness.said(caplog) if line.startswith(begins)]


@of_each_kind
def test_tensorflow_2_calls_without_effect_are_named(kind, tmp_path, caplog, same_message):
    def inputs(x):
        for call in WITHOUT_EFFECT.values():
            call(x)
        return x

    make(kind, tmp_path, inputs).train(input_fn, max_steps=1)
    lines = sorted(of_calls(caplog))
    assert len(lines) == len(WITHOUT_EFFECT)
    for line, begin in zip(lines, sorted(WITHOUT_EFFECT), strict=True):
        place = WITHOUT_EFFECT[begin].__code__.co_firstlineno
        assert f"test_training_faults.py, line {place}, in <lambda>: " in line
        if kind == "plain":
            same_message(line.partition(" The op ")[0])


@off_a_tpu
def test_tensorflow_2_calls_with_effect_cause_no_warning(kind, tmp_path, caplog):
    def inputs(x):
        v1.summary.scalar("mean", tf.reduce_mean(x))
        with tf.summary.create_file_writer("unused").as_default(), tf.summary.record_if(True):
            tf.summary.scalar("mean", tf.reduce_mean(x), step=v1.train.get_global_step())
        # TensorFlow's own assertion is unused.
        tf.math.confusion_matrix(tf.cast(x[:, 0], tf.int32), tf.cast(x[:, 1], tf.int32), 10)
        with tf.control_dependencies([tf.print("x", x), tf.debugging.assert_less(x, 100.0)]):
            return tf.identity(x)

    make(kind, tmp_path, inputs).train(input_fn, max_steps=1)
    assert of_calls(caplog) == []


# Weights that Keras sets in a session of its own.


def embedded(x):
    layer = tf.keras.layers.Embedding(10, 1, weights=[np.ones([10, 1])], name="given")
    return tf.squeeze(layer(tf.cast(x, tf.int32)), -1)


def with_set_weights(x):
    layer = tf.keras.layers.Dense(3, use_bias=False, name="given")
    y = layer(x)
    layer.set_weights([np.eye(3)])
    return y


@of_each_kind
@pytest.mark.parametrize(
    "inputs, name", [(embedded, "given/embeddings"), (with_set_weights, "given/kernel")]
)
def test_keras_weights_set_in_another_session_are_refused(kind, inputs, name, tmp_path):
    message = harness.refusal(ValueError, make(kind, tmp_path, inputs).train, input_fn, max_steps=1)
    assert message.startswith(f"model_fn gives values to {name} that no training gets")
    assert f", in {inputs.__name__}: " in message


@of_each_kind
def test_keras_initializer_weights_are_used(kind, tmp_path):
    def inputs(x):
        values = tf.keras.initializers.Constant(np.diag([1.0, 2, 3]))
        return tf.keras.layers.Dense(3, use_bias=False, kernel_initializer=values, name="given")(x)

    estimator = make(kind, tmp_path, inputs, of_the_rest)
    estimator.train(input_fn, max_steps=1)
    found = estimator.get_variable_value("given/kernel")
    np.testing.assert_array_equal(found, np.diag([1.0, 2, 3]))
