# SPDX-License-Identifier: Apache-2.0
"""Tables of bucketized and crossed columns, whose ids are computed from other features."""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc

AGE = np.array([3.0, 12.0, 12.5, 40.0], np.float32)
PAIR = np.array([[3.0, 30.0], [12.0, 5.0], [12.5, 12.0], [40.0, 10.0]], np.float32)
WORD = np.array(["a", "b", "a", "c"])
BOUNDARIES = [10.0, 12.5, 30.0]
LABELS = np.array([1.0, 2.0, 4.0, 8.0], np.float32)


def buckets(width=1):
    number = tf.feature_column.numeric_column("age", [width])
    return tf.feature_column.bucketized_column(number, BOUNDARIES)


def crossed(*others):
    return tf.feature_column.crossed_column([buckets(), "word", *others], 11)


def ids_of_tensorflow(column, features):
    """The ids of each sample, by TensorFlow's own indicator column."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        indicator = tf.feature_column.indicator_column(column)
        constants = {
            key: tf.SparseTensor(value.indices, value.values, value.dense_shape)
            if isinstance(value, tf.compat.v1.SparseTensorValue)
            else tf.constant(value)
            for key, value in features.items()
        }
        counts = session.run(tf.compat.v1.feature_column.input_layer(constants, [indicator]))
    return [np.repeat(np.arange(len(row)), row.astype(int)) for row in counts]


TWO_WORDS = tf.compat.v1.SparseTensorValue(
    np.array([[0, 0], [1, 0], [1, 1], [3, 0]]), np.array(["x", "y", "z", "x"]), np.array([4, 2])
)
CASES = {
    "buckets": (buckets(), {"age": AGE}),
    "buckets [batch, 1]": (buckets(), {"age": AGE[:, np.newaxis]}),
    "buckets [batch, 2]": (buckets(2), {"age": PAIR}),
    "crossed": (crossed(), {"age": AGE, "word": WORD}),
    "crossed with sparse": (crossed("tags"), {"age": AGE, "word": WORD, "tags": TWO_WORDS}),
}


def estimator(column, model_dir, device=None):
    def model_fn(features, labels, mode, params):
        rows = fc.DenseFeatures([column])(features)
        if mode == ee.ModeKeys.PREDICT:
            return ee.TPUEstimatorSpec(mode, predictions={"rows": rows})
        return harness.minimized(mode, tf.reduce_sum(rows * labels[:, tf.newaxis]), 1.0)

    spec = ee.EmbeddingConfigSpec([column], ee.StochasticGradientDescentParameters(0.5))
    return harness.estimator(model_fn, spec, model_dir, device=device)


def columns_of(categorical, combiner="sum"):
    size = (
        categorical.num_buckets if hasattr(categorical, "num_buckets") else categorical._num_buckets
    )
    initial = 1.0 + np.arange(2 * size, dtype=np.float32).reshape(size, 2)
    column = fc.embedding_column(
        categorical, 2, combiner, tf.compat.v1.constant_initializer(initial)
    )
    return column, initial


@pytest.mark.parametrize("name", CASES)
def test_they_train_and_serve_off_a_tpu(name, tmp_path):
    categorical, features = CASES[name]
    column, table = columns_of(categorical)
    ids = ids_of_tensorflow(categorical, features)
    if name == "buckets":
        assert [list(one) for one in ids] == [[one] for one in np.digitize(AGE, BOUNDARIES)]
    built = estimator(column, tmp_path / "model")
    built.train(harness.input_fn_of([(features, LABELS)] * 2), steps=2)
    for _ in range(2):
        for sample, label in zip(ids, LABELS, strict=True):
            np.subtract.at(table, sample, 0.5 * label)
    trained = harness.saved(tmp_path / "model", 2)
    (key,) = (key for key in trained if key.endswith("embedding_weights"))
    np.testing.assert_allclose(trained[key], table, rtol=1e-6)
    rows = np.stack([table[sample].sum(0) for sample in ids])
    inputs = harness.input_fn_of([(features, LABELS)])
    loss = built.evaluate(inputs, steps=1)["loss"]
    np.testing.assert_allclose(loss, np.sum(rows * LABELS[:, np.newaxis]), rtol=1e-6)
    predicted = [one["rows"] for _, one in zip(ids, built.predict(inputs), strict=False)]
    np.testing.assert_allclose(predicted, rows, rtol=1e-6)
    if name != "crossed with sparse":
        receive = harness.receiver_of(
            **{
                key: (tf.as_dtype(value.dtype), [None, *value.shape[1:]])
                for key, value in features.items()
            }
        )
        serve = harness.exported(built, tmp_path / "out", receive)
        served = serve(**{key: tf.constant(value) for key, value in features.items()})
        np.testing.assert_allclose(served["rows"], rows, rtol=1e-6)


def test_their_weights_may_be_dense(tmp_path):
    weighted = tf.feature_column.weighted_categorical_column(buckets(), "weight")
    column, table = columns_of(weighted)
    weights = np.array([[0.5], [2.0], [3.0], [0.25]], np.float32)
    features = {"age": AGE, "weight": weights}
    estimator(column, tmp_path).train(harness.input_fn_of([(features, LABELS)]), steps=1)
    np.subtract.at(table, np.digitize(AGE, BOUNDARIES), 0.5 * weights * LABELS[:, np.newaxis])
    trained = harness.saved(tmp_path, 1)
    (key,) = (key for key in trained if key.endswith("embedding_weights"))
    np.testing.assert_allclose(trained[key], table, rtol=1e-6)


@pytest.mark.parametrize("name", ["buckets", "crossed"])
def test_a_tpu_is_given_ids(name, tmp_path):
    column, _ = columns_of(CASES[name][0])
    made = lambda: estimator(column, tmp_path, device="host").train(lambda params: None, steps=1)  # noqa: E731
    assert harness.refusal(ValueError, made) == (
        f"Column {column.name!r}: on a TPU, input_fn gives the ids of a table, and "
        f"{column.categorical_column.name!r} computes them from other features. Compute them in "
        "input_fn (tf.searchsorted for buckets, tf.sparse.cross_hashed for crosses), and make the "
        "column of categorical_column_with_identity; with use_tpu=False it trains as it is."
    )
