"""The statements of docs/differences.md about gradients and variables hold, for stock and ours.

Programs change how the model's optimizer trains. In ours, the change does not reach tables. Stock
is tensorflow-estimator's own class, in this process.
"""

import harness
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_estimator.python.estimator.tpu.tpu_estimator import TPUEstimator as Stock

import estimator_emb as ee

v1 = tf.compat.v1
RATE, LIMIT, SCALE, FACTOR, PENALTY = 0.5, 0.1, 128.0, 0.1, 0.1
"""Learning rate, limit of clipped gradients, factors of loss and gradients, factor of penalties."""


def input_layer(features, column, **kwargs):
    return v1.feature_column.input_layer(features, [column], **kwargs)


def in_scope(layer=input_layer, **kwargs):
    def scoped(features, column):
        with v1.variable_scope("s", **kwargs):
            return layer(features, column)

    return scoped


def keras_layer(of=v1.keras.layers, **kwargs):
    return lambda features, column: of.DenseFeatures([column], **kwargs)(features)


def minimized(penalty=lambda: 0.0):
    return lambda optimizer, loss, step: optimizer.minimize(loss + penalty(), step)


def changing(change, scale=1.0):
    def train(optimizer, loss, step):
        computed = optimizer.compute_gradients(loss * scale)
        return optimizer.apply_gradients(change(computed), step)

    return train


def times(gradient, factor):
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor


def clipped_together(computed):
    gradients, variables = zip(*computed, strict=True)
    return list(zip(v1.clip_by_global_norm(gradients, LIMIT)[0], variables, strict=True))


def averaged(optimizer, loss, step):
    train_op = optimizer.minimize(loss, step)
    with tf.control_dependencies([train_op]):
        return v1.train.ExponentialMovingAverage(0.5).apply(v1.trainable_variables())


def every_second(optimizer, loss, step):
    computed = optimizer.compute_gradients(loss)
    is_even = tf.equal(step % 2, 0)
    with tf.control_dependencies([is_even]):
        counted = v1.assign_add(step, 1)
    applied = v1.cond(is_even, lambda: optimizer.apply_gradients(computed), tf.no_op)
    return tf.group(applied, counted)


def decayed_by_hand(optimizer, loss, step):
    train_op = optimizer.minimize(loss, step)
    with tf.control_dependencies([train_op]):
        return tf.group(*[v.assign_sub(PENALTY * v) for v in v1.trainable_variables()])


_tape = []


def in_tape(features, column):
    _tape[:] = [tf.GradientTape()]
    _tape[0].__enter__()
    return input_layer(features, column)


def by_tape(optimizer, loss, step):
    _tape[0].__exit__(None, None, None)
    variables = v1.trainable_variables()
    gradients = _tape[0].gradient(loss, variables)
    return optimizer.apply_gradients(zip(gradients, variables, strict=True), step)


def by_gradients(optimizer, loss, step):
    variables = v1.trainable_variables()
    gradients = v1.gradients(loss, variables)
    return optimizer.apply_gradients(zip(gradients, variables, strict=True), step)


@tf.custom_gradient
def scaled(activations):
    return activations, lambda gradient: gradient * FACTOR


def l2(variable):
    return PENALTY * v1.reduce_sum(variable * variable)


def only_dense(optimizer, loss, step):
    return optimizer.minimize(loss, step, [v for v in v1.trainable_variables() if v.op.name == "w"])


# Name -> how the program differs: `layer(features, column)` reads the column, and
# `train(optimizer, loss, step)` returns the train_op.
CASES = {
    "as it is": {},
    "layer trainable=False": {"layer": lambda f, c: input_layer(f, c, trainable=False)},
    "keras 1 trainable=False": {"layer": keras_layer(trainable=False)},
    "keras 2 trainable=False": {"layer": keras_layer(tf.keras.layers, trainable=False)},
    "scope regularizer": {
        "layer": in_scope(regularizer=l2),
        "train": minimized(v1.losses.get_regularization_loss),
    },
    "keras 1 scope regularizer": {
        "layer": in_scope(keras_layer(), regularizer=l2),
        "train": minimized(v1.losses.get_regularization_loss),
    },
    "penalty": {"train": minimized(lambda: v1.add_n([l2(v) for v in v1.trainable_variables()]))},
    "decay by hand": {"train": decayed_by_hand},
    "moving average": {"train": averaged},
    "clip_by_global_norm": {"train": changing(clipped_together)},
    "clip_by_norm": {"train": changing(lambda gs: [(tf.clip_by_norm(g, LIMIT), v) for g, v in gs])},
    "factor": {"train": changing(lambda gs: [(times(g, FACTOR), v) for g, v in gs])},
    "scaled loss": {"train": changing(lambda gs: [(times(g, 1 / SCALE), v) for g, v in gs], SCALE)},
    "every second step": {"train": every_second},
    "tape": {"layer": in_tape, "train": by_tape},
    "tf.gradients": {"train": by_gradients},
    "custom_getter": {
        "layer": in_scope(custom_getter=lambda getter, *of, **kw: 2.0 * getter(*of, **kw))
    },
    "stop_gradient": {"layer": lambda f, c: tf.stop_gradient(input_layer(f, c))},
    "var_list": {"train": only_dense},
    "partitioner": {"layer": in_scope(partitioner=v1.fixed_size_partitioner(2))},
    "constraint": {"layer": in_scope(constraint=lambda v: tf.clip_by_value(v, -0.5, 0.5))},
}

# Advice of the docs page -> (the case it replaces, arguments that train the tables like stock).
DECAY = {"weight_decay_factor": 2 * PENALTY, "multiply_weight_decay_factor_by_learning_rate": True}
MULTIPLIED = {"experimental_gradient_multiplier_fn": lambda step: 1 / SCALE}
INSTEAD = {
    "rate of 0": ("layer trainable=False", {"column": {"learning_rate_fn": lambda step: 0.0}}),
    "weight_decay_factor": ("scope regularizer", {"optimizer": DECAY}),
    "multiplier": ("scaled loss", {**CASES["scaled loss"], "spec": MULTIPLIED}),
    "custom gradient": (
        "factor",
        {**CASES["factor"], "layer": lambda f, c: scaled(input_layer(f, c))},
    ),
}


def run(folder, of_class=ee.TPUEstimator, layer=input_layer, train=None, **ours):
    """Trains a table of five rows for two steps. Returns the table, `w`, and all names.

    `ours` has arguments of the table's column, of its optimizer, and of the spec.
    """
    ids = tf.feature_column.categorical_column_with_identity("a", 5)
    ones = v1.constant_initializer(1.0)
    a = v1.tpu.experimental.embedding_column(ids, 2, initializer=ones, **ours.get("column", {}))
    sgd = ee.StochasticGradientDescentParameters(RATE, **ours.get("optimizer", {}))
    spec = ee.EmbeddingConfigSpec([a], sgd, **ours.get("spec", {}))

    def model_fn(features, labels, mode, params):
        weights = v1.get_variable("w", [2, 1], initializer=ones)
        loss = tf.reduce_mean(tf.square(tf.matmul(layer(features, a), weights) - labels))
        step = v1.train.get_global_step()
        train_op = (train or minimized())(v1.train.GradientDescentOptimizer(RATE), loss, step)
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    batch = {"a": harness.sparse([[0], [1], [1], [3]])}, np.float32([[0], [1], [4], [2]])
    spec = None if of_class is Stock else spec
    estimator = harness.estimator(model_fn, spec, folder, of_class=of_class)
    estimator.train(harness.input_fn_of([batch] * 2))
    saved = harness.saved(folder, 2)
    (table,) = [name for name in saved if name.endswith("/embedding_weights")]
    return saved[table], saved["w"], sorted(saved)


FROZEN = "trainable=False has no effect on the tables of columns a"
REGULARIZER = "The regularizer of a variable scope has no effect on the tables of columns a"
PENALIZED = "The loss has a penalty on tpu_embedding_dummy_table_variable"
AVERAGES = "Embedding tables have no moving averages, as on a TPU"
CHANGED = "model_fn changes gradients before its optimizer applies them (op %s)"
UNREACHED = "No gradient reaches features ['a'] of table tbl_a: zeros are used"
WARNINGS = {
    "layer trainable=False": FROZEN,
    "keras 1 trainable=False": FROZEN,
    "keras 2 trainable=False": FROZEN,
    "scope regularizer": REGULARIZER,
    "keras 1 scope regularizer": REGULARIZER,
    "penalty": PENALIZED,
    "moving average": AVERAGES,
    "clip_by_global_norm": CHANGED % "global_norm/L2Loss",
    "clip_by_norm": CHANGED % "clip_by_norm/mul",
    "factor": CHANGED % "mul_1",
    "scaled loss": CHANGED % "mul_1",
    "stop_gradient": UNREACHED,
    "var_list": UNREACHED,
}
"""Case -> the start of our warning."""
AS_STOCK = ["as it is", *"tf.gradients tape stop_gradient var_list partitioner constraint".split()]
"""Cases that train all variables as in stock. Some warn nevertheless: they train no table."""


@pytest.mark.fast(2)
@pytest.mark.parametrize("name", CASES)
def test_only_the_documented_cases_differ_from_stock_and_warn(name, tmp_path, caplog):
    *ours, names = run(tmp_path / "ours", **CASES[name])
    said = harness.said(caplog)
    assert len(said) == (name in WARNINGS) and all(one.startswith(WARNINGS[name]) for one in said)
    *stock, names_of_stock = run(tmp_path / "stock", Stock, **CASES[name])
    is_same = all(map(np.allclose, ours, stock)) and names == names_of_stock
    assert is_same == (name in AS_STOCK)
    assert harness.said(caplog) == said  # Stock adds nothing.


@pytest.mark.slow
@pytest.mark.parametrize("name", INSTEAD)
def test_documented_replacements_train_like_stock(name, tmp_path):
    case, instead = INSTEAD[name]
    ours, *_ = run(tmp_path / "ours", **instead)
    stock, *_ = run(tmp_path / "stock", Stock, **CASES[case])
    compared = [0, 1, 3] if name == "weight_decay_factor" else [0, 1, 2, 3, 4]
    np.testing.assert_allclose(ours[compared], stock[compared], rtol=1e-5)
    if name == "weight_decay_factor":  # In ours, rows that no sample looks up do not decay.
        np.testing.assert_array_equal(ours[[2, 4]], np.ones([2, 2]))
        # Two steps in stock. The penalty's gradient is 2 * PENALTY * row.
        np.testing.assert_allclose(stock[[2, 4]], (1 - RATE * 2 * PENALTY) ** 2, rtol=1e-5)
