"""Features that several columns read: trained like NumPy off a TPU, refused on a TPU.

The loss is the sum of outputs times labels, and outputs are linear in each variable. So gradients
depend only on ids and labels.
"""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc

IDS = [[[1, 2], [3], [1], [0, 4, 4]], [[4], [2, 2], [0], [1]]]
LABELS = np.array([[[1.0], [0.5], [-2.0], [3.0]], [[0.25], [-1.0], [2.0], [1.5]]], np.float32)
COUNTS = np.array([[np.bincount(row, minlength=5) for row in batch] for batch in IDS], np.float32)
MEANS = COUNTS / COUNTS.sum(2, keepdims=True)
KEY = tf.feature_column.categorical_column_with_identity
START = {size: np.cos(np.arange(5.0 * size)).reshape(5, size) for size in (2, 3)}


def a(key="a"):
    return KEY(key, 5)


def table(categorical, size=3, **kwargs):
    start = harness.initializer(START[size])
    return fc.embedding_column(categorical, size, initializer=start, **kwargs)


def v1_layer(features, columns):
    return tf.compat.v1.feature_column.input_layer(features, columns)


def v1_keras_layer(features, columns):
    return tf.compat.v1.keras.layers.DenseFeatures(columns)(features)


def keras_layer(features, columns):
    return tf.keras.layers.DenseFeatures(columns)(features)


SCOPES = {v1_layer: "input_layer", v1_keras_layer: "dense_features", keras_layer: "dense_features"}


def summed(tensor):
    return tf.reduce_sum(tensor, list(range(1, tensor.shape.rank)))[:, None]


def weighed(counts):
    """Returns `counts` [batch, 5] times a trainable vector `wide`, initially zeros."""
    wide = tf.compat.v1.get_variable("wide", [5, 1], initializer=tf.zeros, use_resource=True)
    return tf.matmul(counts, wide)


def input_fn_of(form):
    def given(rows):
        weights = [[2.0] * len(row) for row in rows]
        if form == "sparse":
            return {"a": harness.sparse(rows), "w": harness.sparse(weights, np.float32)}
        return {"a": harness.matrix(rows, 3), "w": np.full([4, 3], 2.0, np.float32)}

    return harness.input_fn_of(
        [(given(rows), labels) for rows, labels in zip(IDS, LABELS, strict=True)]
    )


def trained(matrices, start, rate=0.5):
    """Returns a variable after SGD. `matrices` [2, 4, 5] spread gradients over its rows."""
    steps = zip(matrices, LABELS, strict=True)
    return start - rate * sum(m.T @ np.tile(y, start.shape[1]) for m, y in steps)


WIDE = (COUNTS, np.zeros([5, 1]), 1.0)
DEEP = {size: (MEANS, START[size]) for size in (2, 3)}
IN = "{}/a_embedding/embedding_weights".format


# Each function returns the spec's columns, the model's output, and {variable: arguments of
# `trained`}. The output sums the variables' products with the batch's counts or means.


def an_indicator_beside_a_table(layer):
    deep = table(a())
    columns = [deep, tf.feature_column.indicator_column(a())]

    def output(features):
        both = layer(features, columns)  # Ordered by the names of the columns.
        return summed(both[:, :3]) + weighed(both[:, 3:])

    return [deep], output, {IN(SCOPES[layer]): DEEP[3], "wide": WIDE}


def weights_of_a_table_beside_it():
    """Off a TPU, weights of ids are also features that other columns read."""
    weighted = tf.feature_column.weighted_categorical_column(a(), "w")
    deep = table(weighted)

    def output(features):
        counts = v1_layer(features, [tf.feature_column.indicator_column(weighted)])
        return weighed(counts) + summed(v1_layer(features, [deep]))

    name = "input_layer_1/a_weighted_by_w_embedding/embedding_weights"
    return [deep], output, {name: DEEP[3], "wide": (2 * COUNTS, *WIDE[1:])}


def two_tables_of_one_feature(layer, anew=False):
    """Each column has its own table, in any order, even if model_fn makes the columns."""

    def columns():
        return table(a()), table(a(), 2)

    made = columns()

    def output(features):
        deep, other = columns() if anew else made
        return summed(layer(features, [other])) + 2 * summed(layer(features, [deep]))

    scope = SCOPES[layer]
    weights = {IN(scope): DEEP[2], IN(f"{scope}_1"): (2 * MEANS, START[3])}
    return list(made), output, weights


def two_sequences_and_an_indicator_of_one_feature():
    sequence = tf.feature_column.sequence_categorical_column_with_identity("a", 5)
    columns = [table(sequence, size, max_sequence_length=3) for size in (3, 2)]

    def output(features):
        out = 0.0
        for column in columns:
            values, lengths = tf.keras.experimental.SequenceFeatures([column])(features)
            out += summed(values) + 0.0 * tf.cast(lengths, tf.float32)[:, None]
        ordinary = [tf.feature_column.indicator_column(sequence)]
        counts, _ = tf.keras.experimental.SequenceFeatures(ordinary)(features)
        return out + weighed(tf.reduce_sum(counts, 1))

    weights = {IN("sequence_features"): (COUNTS, START[3]), "wide": WIDE}
    return columns, output, {IN("sequence_features_1"): (COUNTS, START[2]), **weights}


CASES = {
    "an indicator, input_layer": (lambda: an_indicator_beside_a_table(v1_layer), "sparse", False),
    "an indicator, DenseFeatures": (
        lambda: an_indicator_beside_a_table(keras_layer), "dense", True,
    ),
    "weights": (weights_of_a_table_beside_it, "sparse", False),
    "two tables": (lambda: two_tables_of_one_feature(v1_keras_layer), "sparse", False),
    "two tables, anew": (lambda: two_tables_of_one_feature(keras_layer, True), "sparse", True),
    "two sequences": (two_sequences_and_an_indicator_of_one_feature, "sparse", False),
}  # fmt: skip
"""Case -> (program, form of ids, whether lookups are a step ahead). See `beside_stock` for more."""


@pytest.mark.fast(1)
@pytest.mark.parametrize("case", CASES)
def test_columns_that_share_a_feature_train_like_numpy(case, tmp_path):
    """Trains two steps, then evaluates, predicts and serves from the checkpoint."""
    make, form, pipelined = CASES[case]
    columns, output, variables = make()

    def model_fn(features, labels, mode, params):
        out = output(features)
        if mode == ee.ModeKeys.PREDICT:
            return harness.served(mode, out=out)
        return harness.minimized(mode, tf.reduce_sum(out * labels))

    sgd = ee.StochasticGradientDescentParameters(0.5)
    spec = ee.EmbeddingConfigSpec(columns, sgd, pipeline_execution_with_tensor_core=pipelined)
    estimator = harness.estimator(model_fn, spec, tmp_path / "model")
    estimator.train(input_fn_of(form), steps=2)
    saved = harness.saved(tmp_path / "model", 2)
    weights = {name: trained(*arguments) for name, arguments in variables.items()}
    assert set(saved) == {"global_step", *weights}
    for name, value in weights.items():
        value = value.reshape(saved[name].shape)
        np.testing.assert_allclose(saved[name], value, rtol=1e-5, atol=1e-6, err_msg=name)

    counts = {name: matrices[0] for name, (matrices, *_) in variables.items()}  # Of one batch.
    want = sum((counts[name] @ value).sum(1, keepdims=True) for name, value in weights.items())
    loss = estimator.evaluate(input_fn_of(form), steps=1)["loss"]
    np.testing.assert_allclose(loss, np.sum(want * LABELS[0]), rtol=1e-4)
    predicted = [one["out"] for one in estimator.predict(input_fn_of(form))][:4]
    np.testing.assert_allclose(predicted, want, rtol=1e-4, atol=1e-5)
    receive = harness.receiver_of(a=(tf.int64, [None, 3]), w=(tf.float32, [None, 3]))
    serve = harness.exported(estimator, tmp_path / "export", receive)
    ids = harness.matrix(IDS[0], 3)
    served = serve(a=tf.constant(ids), w=tf.constant(np.where(ids < 0, 0.0, 2.0), tf.float32))
    np.testing.assert_allclose(served["out"], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cores", [None, 1])
def test_columns_beside_config_dicts(cores, tmp_path):
    """A numeric column reads an activation everywhere. Off a TPU, other columns read ids."""
    ids = np.array([1, 3, 1, 4])

    def model_fn(features, labels, mode, params):
        columns = [tf.feature_column.numeric_column("a", [3])]
        if not cores:
            columns.append(tf.feature_column.indicator_column(a()))
        return ee.TPUEstimatorSpec(mode, predictions={"read": v1_layer(features, columns)})

    spec = harness.table_spec(5, 3, ee.AdagradParameters(0.5), START[3], "mean")
    spec = spec._replace(feature_to_config_dict={"a": ee.FeatureConfig("t")})
    estimator = harness.estimator(model_fn, spec, tmp_path, num_shards=cores)
    got = [one["read"] for one in estimator.predict(harness.input_fn_of([({"a": ids}, ids)]))]
    # Columns are ordered by name.
    expected = START[3][ids] if cores else np.hstack([START[3][ids], np.eye(5)[ids]])
    np.testing.assert_allclose(got, expected, rtol=1e-6)


# Refused.

ACTIVATION = (
    " In model_fn, features ['a'] are activations of embedding tables, not the ids that input_fn "
    "yields. To read ids too, copy them under a second key in input_fn."
)


def refused(error, tmp_path, columns, output, **where):
    def model_fn(features, labels, mode, params):
        return ee.TPUEstimatorSpec(mode, loss=tf.reduce_sum(output(features) * labels))

    def input_fn(params):
        ids = np.array([harness.matrix(rows, 3) for rows in IDS])
        return tf.data.Dataset.from_tensor_slices(({"a": ids}, LABELS))

    spec = ee.EmbeddingConfigSpec(columns, ee.StochasticGradientDescentParameters(0.5))
    with pytest.raises(error) as caught:
        estimator = harness.estimator(model_fn, spec, tmp_path, **where)
        estimator.evaluate(input_fn, steps=1)
    return str(caught.value)


def test_on_a_tpu_an_ordinary_column_of_the_feature_is_refused(tmp_path):
    columns, output, _ = an_indicator_beside_a_table(v1_layer)
    message = refused(ValueError, tmp_path, columns, output, device="host")
    assert message == "Invalid input, not integer. key: a dtype: <dtype: 'float32'>" + ACTIVATION


@pytest.mark.fast(2)
@pytest.mark.parametrize(
    "read",
    [
        lambda ids: tf.one_hot(ids, 5),
        lambda ids: tf.gather(tf.zeros([5, 1]), ids),
        lambda ids: ids.dense_shape,
        lambda ids: tf.sparse.to_dense(ids),
        lambda ids: tf.strings.to_hash_bucket_fast(ids, 5),
    ],
)
def test_an_error_for_an_activation_used_as_ids_names_it(read, tmp_path):
    error = (TypeError, AttributeError)
    message = refused(error, tmp_path, [table(a())], lambda features: summed(read(features["a"])))
    assert message.endswith(ACTIVATION)


def test_unrelated_errors_do_not_mention_activations(tmp_path):
    def output(features):
        return tf.matmul(features["a"], tf.ones([3, 1], tf.int32))

    assert "activation" not in refused(TypeError, tmp_path, [table(a())], output)


# Warned of: no op refuses to compare an activation, or to cast it to integers.


@pytest.mark.fast(3)
@pytest.mark.parametrize(
    "op, taken",
    [
        ("NotEqual", lambda x: tf.cast(tf.not_equal(x, 0.0), tf.float32)),
        ("Equal", lambda x: tf.cast(tf.equal(tf.reshape(x, [-1, 3]), 4.0), tf.float32)),
        ("Cast", lambda x: tf.one_hot(tf.cast(x, tf.int32)[:, 0], 3)),
        (None, lambda x: 2 * tf.squeeze(x[:, None])),
    ],
)
def test_warns_of_ops_that_use_an_activation_as_ids(op, taken, tmp_path, caplog):
    columns = [table(a())]

    def model_fn(features, labels, mode, params):
        out = v1_layer(features, columns) * taken(features["a"])
        return ee.TPUEstimatorSpec(mode, predictions={"out": out})

    spec = ee.EmbeddingConfigSpec(columns, ee.AdagradParameters(0.5))
    estimator = harness.estimator(model_fn, spec, tmp_path)
    list(estimator.predict(input_fn_of("sparse")))
    assert [line for line in harness.said(caplog) if "as ids" in line] == [
        f"model_fn reads features['a'] as ids (op {op}), and in model_fn it is the activation of "
        "an embedding table. To read ids too, copy them under a second key in input_fn."
    ] * bool(op)
