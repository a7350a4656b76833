"""Penalties, variables and layers that a training leaves out are named, and intended ones are not.

Stock tensorflow-estimator trains such models without a message.
"""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee

v1 = tf.compat.v1
losses = v1.losses
layers = v1.layers
pytestmark = pytest.mark.usefixtures("installed")
X = np.array([[1.0, 2, 3], [4, 6, 5], [2, 0, 1], [1, 1, 9]], np.float32)
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("local", "emulated")]
of_each_kind = pytest.mark.parametrize("kind", ["plain", *SLOW])
PENALTY = tf.keras.regularizers.l2(0.1)
WORDS = ("regularization losses", "No gradient reaches", "without training=")


def input_fn(params=None):
    return tf.data.Dataset.from_tensors(({"x": X}, X[:, :1])).repeat()


def squared(y, labels):
    return tf.reduce_mean(tf.square(y - labels))


def minimized(loss, variables=None, step=True):
    step = v1.train.get_global_step() if step else None
    return v1.train.GradientDescentOptimizer(0.001).minimize(loss, step, variables)


def warnings_of(kind, model_dir, build, caplog):
    """Trains, and returns the warnings. `build(x, labels)` returns a loss, or it and a train_op."""

    def model(features, labels, mode, spec):
        built = build(features["x"], labels)
        loss, train_op = built if isinstance(built, tuple) else (built, None)
        if mode == ee.ModeKeys.TRAIN and train_op is None:
            train_op = tf.group(minimized(loss), v1.get_collection(v1.GraphKeys.UPDATE_OPS))
        return spec(mode, loss=loss, train_op=train_op)

    estimator = harness.of_kind(kind, model, model_dir, run={})
    estimator.train(input_fn, max_steps=1)
    estimator.evaluate(input_fn, steps=1)
    return [line for line in harness.said(caplog) if any(word in line for word in WORDS)]


# What is left out.


def lost_penalty(x, labels):
    return squared(layers.dense(x, 1, kernel_regularizer=PENALTY), labels)


def lost_penalty_of_variable(x, labels):
    w = v1.get_variable("w", [3, 1], regularizer=PENALTY)
    return squared(x @ w, labels)


def by_argmax(x, labels):
    chosen = tf.argmax(layers.dense(x, 3, name="cut"), 1)
    return squared(layers.dense(tf.one_hot(chosen, 3), 1), labels)


def by_python(x, labels):
    hidden = layers.dense(x, 3, name="cut")
    outside = v1.py_func(lambda one: one, [hidden], tf.float32)
    return squared(layers.dense(tf.reshape(outside, [4, 3]), 1), labels)


def undropped(x, labels):
    x = layers.dense(x, 3)
    return squared(layers.dense(layers.dropout(x, 0.5), 1), labels)


def unnormalized(x, labels):
    x = layers.dense(x, 3)
    return squared(
        layers.dense(
            layers.batch_normalization(
                x,
                momentum=0.9,
            ),
            1,
        ),
        labels,
    )


def unnormalized_images(x, labels):
    x = layers.conv2d(tf.reshape(x, [4, 3, 1, 1]), 2, 1)
    return squared(layers.dense(layers.flatten(layers.batch_normalization(x)), 1), labels)


LEFT_OUT = {
    lost_penalty: "The regularization losses, such as 'dense/kernel/Regularizer/mul', are part of",
    lost_penalty_of_variable: "get_regularization_loss() to the loss",
    by_argmax: "No gradient reaches cut/kernel, cut/bias, although the loss",
    by_python: "the op PyFunc has no gradient",
    undropped: "A layer that is called without training= runs in inference mode",
    unnormalized: "A layer that is called without training= runs in inference mode",
    unnormalized_images: "A layer that is called without training= runs in inference mode",
}


@pytest.mark.fast(5)
@of_each_kind
@pytest.mark.parametrize("build", LEFT_OUT, ids=lambda one: one.__name__)
def test_what_a_training_leaves_out_is_named_once(kind, build, tmp_path, caplog):
    if kind == "emulated" and build is by_python:
        pytest.skip("A TPU runs no Python.")
    (line,) = warnings_of(kind, tmp_path, build, caplog)
    assert LEFT_OUT[build] in line
    assert f"in {build.__name__}" in line


@of_each_kind
def test_the_op_that_blocks_all_gradients_is_named(kind, tmp_path, caplog):
    def build(features, labels, mode, spec):
        loss = squared(tf.cast(tf.argmax(layers.dense(features["x"], 3), 1), tf.float32), labels)
        return spec(mode, loss=loss, train_op=minimized(loss))

    estimator = harness.of_kind(kind, build, tmp_path, run={})
    message = harness.refusal(ValueError, estimator.train, input_fn, max_steps=1)
    assert message.startswith("No gradients provided for any variable")
    (line,) = (line for line in harness.said(caplog) if line.startswith("No gradient reaches"))
    assert "dense/kernel, dense/bias, although" in line and "the op ArgMax has no" in line


# Correct programs.


def correct_parts(x, labels):
    """Yields the loss of each part of a correct model. A warning would name the part's variable."""
    no_penalty = tf.keras.regularizers.l2(0.0)
    yield squared(layers.dense(x, 1, kernel_regularizer=no_penalty), labels)
    # The target of Q-learning: a maximum of another network, behind a stopped gradient.
    best = tf.argmax(layers.dense(x, 3, name="target"), 1)
    yield squared(layers.dense(x, 1), labels + tf.stop_gradient(tf.cast(best, tf.float32)))
    y = layers.dense(x, 3, name="straight_through")
    yield squared(layers.dense(y + tf.stop_gradient(tf.round(y) - y), 1), labels)

    @tf.custom_gradient
    def rounded(y):
        return tf.round(y), lambda gradient: gradient

    yield squared(layers.dense(rounded(layers.dense(x, 3, name="own_gradient")), 1), labels)
    # REINFORCE: an action is drawn from logits, and the loss has its logarithm.
    logits = layers.dense(x, 3, name="policy")
    action = v1.multinomial(logits, 1)[:, 0]
    yield tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=action, logits=logits)
    )
    codes = v1.get_variable("codes", [5, 3])
    distances = tf.reduce_sum(tf.square(x[:, None] - codes[None]), 2)
    yield squared(layers.dense(tf.gather(codes, tf.argmin(distances, 1)), 1), labels)
    layers.dense(v1.get_variable("unused", [1, 3]), 3, name="another")
    sized = v1.get_variable("sized", [3, 1])
    yield squared(layers.dense(x, 1), labels) / tf.cast(tf.size(sized), tf.float32)
    limit = v1.get_variable("limit", [], trainable=False)
    yield squared(layers.dense(tf.cast(x > limit, tf.float32), 1), labels)
    y = layers.dense(x, 3, name="before_branch")
    branch = tf.cond(tf.reduce_sum(x) > 0, lambda: layers.dense(y, 1), lambda: y[:, :1])
    yield squared(branch, labels)
    w = v1.get_variable("of_loop", [3, 3])
    y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y @ w), [0, x])[1]
    yield squared(layers.dense(y, 1), labels)


def layers_with_a_mode(x, labels):
    """Yields losses behind layers of tf.layers that are given a mode."""
    for training in (True, False, v1.placeholder_with_default(True, [])):
        y = layers.batch_normalization(layers.dense(x, 3), training=training)
        yield squared(layers.dense(layers.dropout(y, 0.5, training=training), 1), labels)
    y = layers.batch_normalization(layers.dense(x, 3), trainable=False)
    yield squared(layers.dense(layers.dropout(y, 0.5, None, None, False), 1), labels)


@of_each_kind
@pytest.mark.parametrize("parts", [correct_parts, layers_with_a_mode])
def test_what_a_model_leaves_out_on_purpose_is_not_named(kind, parts, tmp_path, caplog):
    def build(x, labels):
        return tf.add_n([*parts(x, labels)])

    assert warnings_of(kind, tmp_path, build, caplog) == []


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
    loss = squared(layers.dense(x, 1, kernel_regularizer=PENALTY, name="b"), labels)
    return loss + losses.get_regularization_loss("a/")


def penalty_of_keras(x, labels):
    layer = tf.keras.layers.Dense(1, kernel_regularizer=PENALTY)
    return squared(layer(x), labels) + tf.add_n(layer.losses)


def some_variables(x, labels):
    loss = squared(layers.dense(layers.dense(x, 3, name="a"), 1, name="b"), labels)
    return loss, minimized(loss, v1.trainable_variables("b"))


def blocked_on_purpose(x, labels):
    chosen = tf.argmax(layers.dense(x, 3, name="cut"), 1)
    loss = squared(layers.dense(tf.one_hot(chosen, 3), 1, name="top"), labels)
    return loss, minimized(loss, v1.trainable_variables("top"))


def adversaries(x, labels):
    made = layers.dense(x, 3, name="generator")
    loss = squared(layers.dense(made, 1, name="critic"), labels)
    ops = [minimized(loss, v1.trainable_variables("critic"), step=False)]
    return loss, tf.group(minimized(-loss, v1.trainable_variables("generator")), *ops)


def whole_number(x, labels):
    """`get_variable` makes integers trainable by default. An optimizer takes none."""
    count = v1.get_variable("count", [], tf.int32, v1.ones_initializer())
    loss = squared(layers.dense(x, 1, name="a"), labels) / tf.cast(count, tf.float32)
    return loss, minimized(loss, v1.trainable_variables("a"))


def own_update(x, labels):
    """An average of a program's own decides, and the train_op updates it by an assignment."""
    mean = v1.get_variable("mean", [3])
    loss = squared(layers.dense(tf.cast(x > mean, tf.float32), 1), labels)
    return loss, tf.group(minimized(loss), mean.assign(tf.reduce_mean(x, 0)))


def accumulated(x, labels):
    loss = squared(layers.dense(x, 1), labels)
    optimizer = v1.train.GradientDescentOptimizer(0.001)
    pairs = optimizer.compute_gradients(loss)
    sums = [v1.get_variable(f"sum{i}", w.shape, trainable=False) for i, (_, w) in enumerate(pairs)]
    added = [total.assign_add(g) for total, (g, _) in zip(sums, pairs, strict=True)]
    with tf.control_dependencies(added):
        pairs = [(total.read_value(), w) for total, (_, w) in zip(sums, pairs, strict=True)]
        return loss, optimizer.apply_gradients(pairs, v1.train.get_global_step())


def layers_of_features(x, labels):
    loss = squared(layers.dense(layers.dropout(layers.dense(x, 3, name="a")), 1, name="b"), labels)
    return loss, minimized(loss, v1.trainable_variables("b"))


ALONE = [
    *(penalty_added, penalties_added, penalty_of_variable_added, total_loss),
    *(penalty_minimized_only, some_penalties, penalty_of_keras, some_variables, adversaries),
    *(blocked_on_purpose, whole_number, own_update, accumulated, layers_of_features),
]


@pytest.mark.fast(4)
@of_each_kind
@pytest.mark.parametrize("build", ALONE, ids=lambda one: one.__name__)
def test_what_a_program_leaves_out_on_purpose_is_not_named(kind, build, tmp_path, caplog):
    assert warnings_of(kind, tmp_path, build, caplog) == []


def test_a_frozen_teacher_from_a_checkpoint_is_not_named(tmp_path, caplog):
    """Its labels are an argmax, and no gradient reaches its variables."""
    warnings_of("plain", tmp_path / "teacher", lambda x, y: by_argmax(x, y), caplog)
    caplog.clear()

    def build(x, labels):
        loss = by_argmax(x, labels)
        v1.train.init_from_checkpoint(str(tmp_path / "teacher"), {"cut/": "cut/"})
        return loss

    assert warnings_of("plain", tmp_path / "student", build, caplog) == []
