"""A table gets its gradient if model_fn wraps its activations: in a tf.function, a loop, or others.

Activations are the rows that the table's feature looks up.
"""

import contextlib

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc

TABLE = np.array([[1.0, -2.0], [0.5, 0.25], [-1.5, 3.0], [2.0, 0.75]], np.float32)
W = np.array([[0.5, -1.0], [0.25, 2.0]], np.float32)
IDS = np.array([1, 3, 1, 0])
LABELS = np.array([[1, 2], [-3, 0.1], [0.5, 4], [1, 1]], np.float32)

minimize = tf.compat.v1.train.Optimizer.minimize


def layer(x, w):
    return tf.tanh(tf.matmul(x, w))


def of_row(row, w):
    return tf.tanh(tf.linalg.matvec(w, row, transpose_a=True))


def custom_gradient(x, w):
    @tf.custom_gradient
    def tanh(z):
        t = tf.tanh(z)
        return t, lambda upstream: upstream * (1 - t * t)

    return tanh(tf.matmul(x, w))


def custom_gradient_of_activation(x, w):
    @tf.custom_gradient
    def doubled(x):
        return 2 * x, lambda upstream: 2 * upstream

    return layer(doubled(x) / 2, w)


def while_loop(x, w):
    def body(i, total):
        return i + 1, total + layer(x, w)

    return tf.while_loop(lambda i, _: i < 1, body, [0, tf.zeros_like(x)])[1]


def cond(x, w):
    step = tf.compat.v1.train.get_global_step()
    return tf.cond(step < 9, lambda: layer(x, w), lambda: tf.zeros_like(x))


WRAPPED = {
    "recompute_grad": lambda x, w: tf.recompute_grad(layer)(x, w),
    "recompute_grad of a part": lambda x, w: tf.recompute_grad(lambda x: layer(x, w))(x),
    "recompute_grad twice": lambda x, w: tf.recompute_grad(tf.recompute_grad(layer))(x, w),
    "custom_gradient": custom_gradient,
    "custom_gradient of the activation": custom_gradient_of_activation,
    "map_fn": lambda x, w: tf.map_fn(lambda row: of_row(row, w), x),
    "map_fn that captures it": lambda x, w: tf.map_fn(
        lambda i: of_row(x[i], w), tf.range(tf.shape(x)[0]), fn_output_signature=tf.float32
    ),
    "scan": lambda x, w: tf.scan(lambda _, row: of_row(row, w), x, tf.zeros([2])),
    "while_loop": while_loop,
    "cond": cond,
    "function": lambda x, w: tf.function(layer)(x, w),
    "function that captures it": lambda x, w: tf.function(lambda: layer(x, w))(),
    "recompute_grad in a function": lambda x, w: tf.function(tf.recompute_grad(layer))(x, w),
    "function in recompute_grad": lambda x, w: tf.recompute_grad(tf.function(layer))(x, w),
}


def output_of(name):
    return lambda features, w: WRAPPED[name](features["x"], w)


def compute_and_apply(optimizer, loss, step):
    return optimizer.apply_gradients(optimizer.compute_gradients(loss), step)


def gradients(optimizer, loss, step):
    variables = tf.compat.v1.trainable_variables()
    pairs = zip(tf.gradients(loss, variables), variables, strict=True)
    return optimizer.apply_gradients(list(pairs), step)


def trained(tmp_path, output, apply=minimize, cores=None, column=None):
    """Returns the table and W after a step of rate 1, with labels as gradients of `output`.

    `apply` returns the train_op. If it is None, model_fn computes gradients with a GradientTape.
    """

    def model_fn(features, labels, mode, params):
        w = tf.compat.v1.get_variable("w", initializer=W, use_resource=True)
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
        if cores:
            reduction = tf.compat.v1.losses.Reduction.SUM
            optimizer = tf.compat.v1.tpu.CrossShardOptimizer(optimizer, reduction=reduction)
        step = tf.compat.v1.train.get_global_step()
        with tf.GradientTape() if apply is None else contextlib.nullcontext() as tape:
            loss = tf.reduce_sum(output(features, w) * labels)
        if not column:  # A saver of the program would save a helper variable.
            names = {one.op.name for one in tf.compat.v1.global_variables()}
            assert names == {"global_step", "w"}
        if apply is None:
            variables = tf.compat.v1.trainable_variables()
            pairs = zip(tape.gradient(loss, variables), variables, strict=True)
            train_op = optimizer.apply_gradients(list(pairs), step)
        else:
            train_op = apply(optimizer, loss, step)
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    start = harness.initializer(TABLE)
    sgd = ee.StochasticGradientDescentParameters(1.0)
    spec = ee.EmbeddingConfigSpec([column(start)], sgd) if column else None
    spec = spec or harness.table_spec(4, 2, sgd, initial=start)
    estimator = harness.estimator(model_fn, spec, tmp_path, num_shards=cores)
    estimator.train(harness.input_fn_of([({"x": IDS}, LABELS)]), steps=1)
    saved = harness.saved(tmp_path, 1)
    assert len(saved) == 3  # No checkpoint holds the helper variable.
    (table,) = (value for name, value in saved.items() if name not in ("w", "global_step"))
    return table, saved["w"]


def assert_equals_numpy(got):
    """Compares the result of `trained`, where the output is tanh(x @ W), with a NumPy step."""
    x = TABLE[IDS]
    z = LABELS * (1 - np.tanh(x @ W) ** 2)  # The gradient of x @ W.
    table = TABLE.copy()
    np.subtract.at(table, IDS, z @ W.T)
    np.testing.assert_allclose(got[0], table, rtol=1e-5)
    np.testing.assert_allclose(got[1], W - x.T @ z, rtol=1e-5)


def test_an_activation_trains_if_wrapped_in_several_ways_at_once(tmp_path):
    """The mean of equal layers has one layer's gradient."""
    names = "recompute_grad of a part", "recompute_grad twice", "custom_gradient of the activation"
    names += "map_fn that captures it", "cond", "function in recompute_grad"

    def output(features, w):
        return tf.add_n([output_of(name)(features, w) for name in names]) / len(names)

    assert_equals_numpy(trained(tmp_path, output))


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize("cores", [None, 2])
@pytest.mark.parametrize("wrapped", WRAPPED)
def test_a_wrapped_activation_trains(wrapped, cores, tmp_path):
    assert_equals_numpy(trained(tmp_path, output_of(wrapped), cores=cores))


@pytest.mark.fast(1)
@pytest.mark.parametrize("apply", [compute_and_apply, gradients])
@pytest.mark.parametrize("wrapped", ["recompute_grad of a part", "scan", "cond"])
def test_a_wrapped_activation_trains_by_any_gradients(wrapped, apply, control_flow, tmp_path):
    assert_equals_numpy(trained(tmp_path, output_of(wrapped), apply))


def column(start):
    categorical = tf.feature_column.categorical_column_with_identity("x", 4)
    column.made = fc.embedding_column(categorical, 2, combiner="sum", initializer=start)
    return column.made


@pytest.mark.parametrize("cores", [None, harness.slow(1)])
@pytest.mark.parametrize("apply", [harness.slow(minimize), None], ids=["minimize", "GradientTape"])
def test_a_layer_of_columns_trains_beside_the_activation_itself(apply, cores, tmp_path):
    """The mean of a layer of columns and an equal layer of the activation has a layer's gradient.

    A GradientTape opens after the activation was computed, so under it only columns are used.
    """

    def output(features, w):
        of_columns = tf.compat.v1.keras.layers.DenseFeatures([column.made])
        if apply is None:
            return layer(of_columns(features), w)
        recomputed = tf.recompute_grad(lambda w: layer(of_columns(features), w))(w)
        return (recomputed + layer(features["x"], w)) / 2

    assert_equals_numpy(trained(tmp_path, output, apply, cores, column))


def test_an_optimizer_in_a_branch_is_refused(control_flow, tmp_path, assert_recorded):
    """The tables are updated outside of the branch, where its gradients cannot be used."""

    def in_branch(optimizer, loss, step):
        return tf.cond(step < 9, lambda: optimizer.minimize(loss, step), tf.no_op)

    def output(features, w):
        return layer(features["x"], w)

    said = harness.refusal(RuntimeError, trained, tmp_path, output, in_branch)
    assert "gradient of feature 'x' was computed inside a tf.function, a loop or a branch" in said
    assert_recorded(said)


def test_a_tape_opened_after_the_activation_is_named(tmp_path, caplog, assert_recorded):
    table, _ = trained(tmp_path, lambda features, w: layer(features["x"], w), apply=None)
    # The tape of model_fn opens after the lookup, so it misses the table's gradient.
    np.testing.assert_array_equal(table, TABLE)
    said = harness.said(caplog)[0]
    assert said.startswith("No gradient reaches features ['x'] of table t: zeros are used.")
    assert_recorded(said)
