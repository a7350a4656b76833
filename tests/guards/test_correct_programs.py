"""A correct program is told nothing, although it leaves something out or looks like a mistake.

test_left_out.py has the mistakes. `make` returns an estimator of a model of (x, labels), which
returns a loss, or a loss and a train_op. `build_graph` ends a call where its session would open.
`told` and `harness.said` return this package's log lines.
"""

import functools

import harness
import numpy as np
import pytest
import tensorflow as tf
import test_left_out
from small_programs import (
    X,
    build_graph,
    check,
    each_kind,
    input_fn,
    linear,
    make,
    minimized,
    mse,
    told,
)
from test_left_out import PENALTY, by_argmax, lost_penalty, lost_penalty_of_variable, negated_phase

import estimator_emb as ee
from estimator_emb.guards import steps
from estimator_emb.guards.call import Call, Runs
from estimator_emb.guards.events import Facts

v1 = tf.compat.v1
losses = v1.losses
layers = v1.layers
pytestmark = pytest.mark.usefixtures("installed")


def with_updates(loss):
    return loss, tf.group(minimized(loss), v1.get_collection(v1.GraphKeys.UPDATE_OPS))


def summed(parts):
    """Makes a model of several. A warning would name the part's variable."""

    @functools.wraps(parts)
    def build(x, labels):
        return with_updates(tf.add_n([*parts(x, labels)]))

    return build


@summed
def correct_parts(x, labels):
    yield mse(layers.dense(x, 1), labels)
    # The target of Q-learning: a maximum of a network that does not train here.
    best = tf.argmax(layers.dense(x, 3, name="target"), 1)
    yield mse(layers.dense(x, 1), labels + tf.stop_gradient(tf.cast(best[:, None], tf.float32)))
    y = layers.dense(x, 3, name="straight_through")  # Rounds, but passes its gradient on.
    yield mse(layers.dense(y + tf.stop_gradient(tf.round(y) - y), 1), labels)

    @tf.custom_gradient
    def rounded(y):
        return tf.round(y), lambda gradient: gradient

    yield mse(layers.dense(rounded(layers.dense(x, 3, name="own_gradient")), 1), labels)
    # REINFORCE: an action is drawn from logits, and the loss has its logarithm.
    logits = layers.dense(x, 3, name="policy")
    action = v1.multinomial(logits, 1)[:, 0]
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=action, logits=logits)
    yield tf.reduce_mean(entropy)
    codes = v1.get_variable("codes", [5, 3])  # The nearest code trains, found by an argmin.
    distances = tf.reduce_sum(tf.square(x[:, None] - codes[None]), 2)
    yield mse(layers.dense(tf.gather(codes, tf.argmin(distances, 1)), 1), labels)
    layers.dense(v1.get_variable("unused", [1, 3]), 3, name="another")  # In no loss.
    sized = v1.get_variable("sized", [3, 1])  # The loss has only its size.
    yield mse(layers.dense(x, 1), labels) / tf.cast(tf.size(sized), tf.float32)
    limit = v1.get_variable("limit", [], trainable=False)
    yield mse(layers.dense(tf.cast(x > limit, tf.float32), 1), labels)
    y = layers.dense(x, 3, name="before_branch")
    branch = tf.cond(tf.reduce_sum(x) > 0, lambda: layers.dense(y, 1), lambda: y[:, :1])
    yield mse(branch, labels)
    w = v1.get_variable("of_loop", [3, 3])
    y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y @ w), [0, x])[1]
    yield mse(layers.dense(y, 1), labels)


@summed
def layers_with_a_mode(x, labels):
    for training in (True, False, v1.placeholder_with_default(True, [])):
        y = layers.batch_normalization(layers.dense(x, 3), training=training)
        yield mse(layers.dense(layers.dropout(y, 0.5, training=training), 1), labels)
    y = layers.dense(x, 3, kernel_regularizer=tf.keras.regularizers.l2(0.0))
    y = layers.batch_normalization(y, trainable=False)
    yield mse(layers.dense(layers.dropout(y, 0.5, None, None, False), 1), labels)


def keras_layers_with_a_mode(x, labels):
    of = tf.keras.layers
    x = of.Dropout(0.5)(of.Dropout(0.5)(x, training=True), training=False)
    x = of.Dropout(0.0)(of.Dense(3)(x))
    return linear(of.BatchNormalization(trainable=False)(x), labels)


def penalty_added(x, labels):
    return lost_penalty(x, labels) + losses.get_regularization_loss()


def penalties_added(x, labels):
    return tf.add_n([lost_penalty(x, labels), *losses.get_regularization_losses()])


def penalty_of_variable_added(x, labels):
    return lost_penalty_of_variable(x, labels) + losses.get_regularization_loss()


def total_loss(x, labels):
    losses.mean_squared_error(labels, layers.dense(x, 1, kernel_regularizer=PENALTY))
    return losses.get_total_loss()


def penalty_minimized_only(x, labels):
    loss = lost_penalty(x, labels)
    return loss, minimized(loss + losses.get_regularization_loss())


def some_penalties(x, labels):
    x = layers.dense(x, 3, kernel_regularizer=PENALTY, name="a")
    loss = mse(layers.dense(x, 1, kernel_regularizer=PENALTY, name="b"), labels)
    return loss + losses.get_regularization_loss("a/")


def penalty_of_keras(x, labels):
    layer = tf.keras.layers.Dense(1, kernel_regularizer=PENALTY)
    return mse(layer(x), labels) + tf.add_n(layer.losses)


def some_variables(x, labels):
    loss = mse(layers.dense(layers.dense(x, 3, name="a"), 1, name="b"), labels)
    return loss, minimized(loss, v1.trainable_variables("b"))


def blocked_on_purpose(x, labels):
    chosen = tf.argmax(layers.dense(x, 3, name="cut"), 1)
    loss = mse(layers.dense(tf.one_hot(chosen, 3), 1, name="top"), labels)
    return loss, minimized(loss, v1.trainable_variables("top"))


def adversaries(x, labels):
    made = layers.dense(x, 3, name="generator")
    loss = mse(layers.dense(made, 1, name="critic"), labels)
    ops = [minimized(loss, v1.trainable_variables("critic"), step=False)]
    return loss, tf.group(minimized(-loss, v1.trainable_variables("generator")), *ops)


def whole_number(x, labels):
    """`get_variable` makes integers trainable by default. An optimizer takes none."""
    count = v1.get_variable("count", [], tf.int32, v1.ones_initializer())
    loss = mse(layers.dense(x, 1, name="a"), labels) / tf.cast(count, tf.float32)
    return loss, minimized(loss, v1.trainable_variables("a"))


def own_update(x, labels):
    """An average of a program's own decides, and the train_op updates it by an assignment."""
    mean = v1.get_variable("mean", [3])
    loss = mse(layers.dense(tf.cast(x > mean, tf.float32), 1), labels)
    return loss, tf.group(minimized(loss), mean.assign(tf.reduce_mean(x, 0)))


def accumulated(x, labels):
    loss = mse(layers.dense(x, 1), labels)
    optimizer = v1.train.GradientDescentOptimizer(0.001)
    pairs = optimizer.compute_gradients(loss)
    sums = [v1.get_variable(f"sum{i}", w.shape, trainable=False) for i, (_, w) in enumerate(pairs)]
    added = [total.assign_add(g) for total, (g, _) in zip(sums, pairs, strict=True)]
    with tf.control_dependencies(added):
        pairs = [(total.read_value(), w) for total, (_, w) in zip(sums, pairs, strict=True)]
        return loss, optimizer.apply_gradients(pairs, v1.train.get_global_step())


def layers_of_features(x, labels):
    loss = mse(layers.dense(layers.dropout(layers.dense(x, 3, name="a")), 1, name="b"), labels)
    return loss, minimized(loss, v1.trainable_variables("b"))


def keras_layers_of_features(x, labels):
    layer = tf.keras.layers.Dense(3, input_shape=[3])
    x = tf.keras.Sequential([layer, tf.keras.layers.Dropout(0.5)])(x)
    loss = negated_phase(x, labels)
    return loss, minimized(loss, [one for one in v1.trainable_variables() if one.op.name == "w"])


def weights_of_an_initializer(x, labels):
    values = tf.keras.initializers.Constant(np.diag([1.0, 2, 3]))
    return linear(tf.keras.layers.Dense(3, kernel_initializer=values)(x), labels)


def phase_of_inference(x, labels):
    tf.keras.backend.set_learning_phase(0)
    return linear(tf.keras.layers.Dropout(0.5)(x), labels)


def phase_of_training(x, labels):
    tf.keras.backend.set_learning_phase(1)
    return linear(tf.keras.layers.Dropout(0.5)(x), labels)


def updates_of_others(x, labels):
    """Updates of a metric, by a feed, by the program's saver, and in a branch that a step runs."""
    v1.metrics.mean(x)
    v1.get_variable("start", [3], trainable=False).assign(v1.placeholder(tf.float32, [3]))
    seen = v1.get_variable("seen", [], trainable=False)
    counted = tf.cond(tf.reduce_sum(x) > 0, lambda: seen.assign_add(1.0), seen.read_value)
    v1.train.Saver()
    with tf.control_dependencies([counted]):
        return linear(tf.identity(x), labels)


def calls_of_tensorflow_2(x, labels):
    with tf.control_dependencies([tf.print("summarized", x)]):
        v1.summary.scalar("mean", tf.reduce_mean(x))
    with tf.summary.create_file_writer("unused").as_default(), tf.summary.record_if(True):
        tf.summary.scalar("mean", tf.reduce_mean(x), step=v1.train.get_global_step())
    # TensorFlow's own assertion is unused.
    tf.math.confusion_matrix(tf.cast(x[:, 0], tf.int32), tf.cast(x[:, 1], tf.int32), 10)
    with tf.control_dependencies([tf.print("x", x)]):
        loss = linear(tf.identity(x), labels)
    return loss, tf.group(minimized(loss), tf.debugging.assert_less(x, 100.0))


CORRECT = [
    # Variables get no gradient on purpose, or a gradient past an op that has none.
    *(correct_parts, some_variables, blocked_on_purpose, adversaries, whole_number),
    # Layers are given their mode, or belong to a part that does not train.
    *(layers_with_a_mode, keras_layers_with_a_mode, layers_of_features, keras_layers_of_features),
    *(phase_of_inference, phase_of_training),
    # Some regularization losses are used.
    *(penalty_added, penalties_added, penalty_of_variable_added, total_loss),
    *(penalty_minimized_only, some_penalties, penalty_of_keras),
    # Steps, or others instead of them, update each variable. An initializer gives weights.
    *(own_update, accumulated, updates_of_others, weights_of_an_initializer),
    calls_of_tensorflow_2,  # Each call has an effect.
]
"""Programs that each look like a mistake, by kind of mistake."""


def test_the_checks_of_models_say_nothing_about_correct_models(caplog):
    for build in CORRECT:
        check(build)
        assert harness.said(caplog) == [], build


@pytest.mark.fast(1)
@each_kind
@pytest.mark.parametrize("build", CORRECT, ids=lambda one: one.__name__)
def test_a_correct_program_is_told_nothing(kind, build, tmp_path, caplog):
    """test_left_out.py has the mistake that each looks like, and the warning about it."""
    if kind == "emulated" and build is calls_of_tensorflow_2:
        pytest.skip("A TPU refuses summaries.")
    estimator, run = make(kind, tmp_path, build), build_graph if kind == "plain" else harness.run
    for call in ("train", "evaluate"):
        run(call, estimator, input_fn, steps=1)
    assert told(caplog) == []


def test_variables_that_the_program_may_set_are_not_named(caplog):
    def assigned(x, labels):
        v1.get_variable("start", [3], trainable=False).assign(x[0])
        return by_argmax(x, labels)

    check(assigned, scaffold=v1.train.Scaffold(init_fn=print))
    check(by_argmax, warm_start="settings")
    assert harness.said(caplog) == []
    check(test_left_out.without_own_average, scaffold=v1.train.Scaffold(init_fn=print))
    assert len(harness.said(caplog)) == 1  # An update is no first value.


def test_what_an_evaluation_or_a_hook_runs_by_name_causes_no_warning(caplog):
    """A training also builds the metrics and hooks of evaluations, which only those run."""
    facts, eager = Facts(Call(Runs.LOCAL, mode="train")), [tf.constant(1.0), tf.Variable(1.0)]
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [4, 3])
        with tf.control_dependencies([tf.print("x", x), tf.debugging.assert_less(x, 100.0)]):
            seen = tf.identity(x, "seen")
        given = {"mode": "train", "loss": linear(x, X[:, :1]), "train_op": tf.no_op()}
        of_tpu = (v1.metrics.mean, {"values": seen})
        steps.unshown_calls(facts, ee.TPUEstimatorSpec(**given, eval_metrics=of_tpu))
        for kind, names in (("evaluation", ["seen"]), ("training", {"a tag": "seen:0"})):
            hook = v1.train.LoggingTensorHook(names, every_n_iter=1)
            hook.eager = eager  # Of no graph.
            steps.unshown_calls(facts, ee.EstimatorSpec(**given, **{f"{kind}_hooks": [hook]}))
        total = v1.get_variable("total", [4, 3], trainable=False)  # Of a metric of the program.
        metrics = {"total": (total.read_value(), total.assign_add(seen))}
        spec = ee.EstimatorSpec(**given, eval_metric_ops=metrics)
        steps.unshown_calls(facts, spec)
        steps.unrun_updates(facts, spec)
    assert harness.said(caplog) == []


def test_updates_run_by_a_hook_cause_no_warning(tmp_path, caplog):
    """The train_op leaves out the moving averages, but what a hook runs is unknown."""

    def build(x, labels):
        return linear(layers.batch_normalization(x, training=True), labels)

    runs_updates = harness.Reads(lambda: v1.get_collection(v1.GraphKeys.UPDATE_OPS))
    build_graph("train", make("plain", tmp_path, build), hooks=[runs_updates])
    check(test_left_out.without_updates, training_hooks=[runs_updates])
    check(test_left_out.without_updates, training_chief_hooks=[runs_updates])
    assert harness.said(caplog) == []


def test_an_activation_cast_to_another_float_is_not_read_as_ids(tmp_path, caplog):
    """A cast of the table's activation 'x' to integers would be a mistake, with a warning."""

    def model_fn(features, labels, mode, params):
        halves = tf.cast(features["x"], tf.bfloat16)
        samples = tf.cast(tf.shape(features["x"])[0], tf.float32)
        return harness.minimized(mode, tf.cast(tf.reduce_sum(halves), tf.float32) / samples)

    spec = harness.table_spec(4, 2, ee.AdagradParameters(0.1))
    batch = {"x": np.arange(4)}, np.zeros(4, np.float32)
    build_graph("train", harness.estimator(model_fn, spec, tmp_path), harness.input_fn_of([batch]))
    assert harness.said(caplog) == []


def test_a_frozen_teacher_from_a_checkpoint_is_not_named(tmp_path, caplog):
    """Its variables get no gradient, behind an argmax, but a checkpoint gives their values."""
    with tf.Graph().as_default(), v1.Session() as session:
        by_argmax(tf.constant(X), X[:, :1])
        session.run(v1.global_variables_initializer())
        teacher = v1.train.Saver().save(session, str(tmp_path / "teacher"))

    def build(x, labels):
        loss = by_argmax(x, labels)
        v1.train.init_from_checkpoint(teacher, {"cut/": "cut/"})
        return loss

    build_graph("train", make("plain", tmp_path / "student", build))
    assert harness.said(caplog) == []


def check_moving_mean(kind, build, model_dir, caplog):
    """Asserts that training a batch normalization of x moves its average and logs nothing."""
    estimator = make(kind, model_dir, build)
    estimator.train(input_fn, max_steps=1)
    assert harness.said(caplog) == []
    (name,) = (one for one in estimator.get_variable_names() if one.endswith("moving_mean"))
    mean = 0.01 * X.mean(0, dtype=np.float64)  # A step from 0 with momentum 0.99.
    np.testing.assert_allclose(estimator.get_variable_value(name), mean, rtol=1e-5)


@each_kind
def test_update_ops_before_the_optimizer_mend_batch_normalization(kind, tmp_path, caplog):
    """TensorFlow's documentation advises this. Our warning advises `with_updates`, used above."""

    def build(x, labels):
        loss = linear(layers.batch_normalization(x, training=True), labels)
        with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            return loss, minimized(loss)

    check_moving_mean(kind, build, tmp_path, caplog)


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


@pytest.mark.fast(1)
@each_kind
@pytest.mark.parametrize("keras", [tf.keras, v1.keras], ids=["v2", "v1"])
@pytest.mark.parametrize("make_model", [functional, subclassed, bare])
def test_the_advice_mends_keras_batch_normalization(kind, keras, make_model, tmp_path, caplog):
    """Our warning about a Keras layer advises to group `get_updates_for` with the train_op."""

    def build(x, labels):
        model = make_model(keras, keras.layers.BatchNormalization(name="bn"))
        loss = linear(model(x, training=True), labels)
        return loss, tf.group(minimized(loss), model.get_updates_for(x))

    check_moving_mean(kind, build, tmp_path, caplog)
