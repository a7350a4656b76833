"""Tables of bucketized and crossed columns, whose ids TensorFlow computes from other features."""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc

AGE = np.array([3.0, 12.0, 12.5, 40.0], np.float32)
WORD = np.array(["a", "b", "a", "c"])
BOUNDARIES = [10.0, 12.5, 30.0]
LABELS = np.array([1.0, 2.0, 4.0, 8.0], np.float32)


def buckets(key, width=1):
    number = tf.feature_column.numeric_column(key, [width])
    return tf.feature_column.bucketized_column(number, BOUNDARIES)


def crossed(*others):
    return tf.feature_column.crossed_column([buckets("age"), "word", *others], 11)


def ids_of_tensorflow(column, features):
    """Returns each sample's ids, computed by TensorFlow's own indicator column."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        indicator = tf.feature_column.indicator_column(column)
        convert = tf.compat.v1.convert_to_tensor_or_sparse_tensor
        constants = {key: convert(value) for key, value in features.items()}
        counts = session.run(tf.compat.v1.feature_column.input_layer(constants, [indicator]))
    return [np.repeat(np.arange(len(row)), row.astype(int)) for row in counts]


DENSE = {
    "age": AGE,
    "one": AGE[:, np.newaxis],
    "pair": np.array([[3.0, 30.0], [12.0, 5.0], [12.5, 12.0], [40.0, 10.0]], np.float32),
    "word": WORD,
    "heavy": AGE,
    "weight": np.array([[0.5], [2.0], [3.0], [0.25]], np.float32),
}
SPARSE = {"age": AGE, "word": WORD, "tags": harness.sparse([["x"], ["y", "z"], [], ["x"]], object)}
COMPUTED = {
    "dense": (DENSE, [buckets("age"), buckets("one"), buckets("pair", 2), crossed()]),
    "sparse": (SPARSE, [buckets("age"), crossed("tags")]),
}
"""Form of the input -> (features, columns)."""


def estimator(columns, model_dir, device=None):
    def model_fn(features, labels, mode, params):
        rows = {column.name: fc.DenseFeatures([column])(features) for column in columns}
        if mode == ee.ModeKeys.PREDICT:
            return harness.served(mode, **rows)
        return harness.minimized(mode, tf.reduce_sum(sum(rows.values()) * labels[:, tf.newaxis]))

    spec = ee.EmbeddingConfigSpec(columns, ee.StochasticGradientDescentParameters(0.5))
    return harness.estimator(model_fn, spec, model_dir, device=device)


def column_of(categorical):
    """Returns a column with a table, and the table's initial values."""
    size = getattr(categorical, "num_buckets", None) or categorical._num_buckets
    initial = 1.0 + np.arange(2 * size, dtype=np.float32).reshape(size, 2)
    return fc.embedding_column(categorical, 2, "sum", harness.initializer(initial)), initial


@pytest.mark.parametrize("form", [harness.slow("dense"), "sparse"])
def test_computed_columns_train_and_serve_off_a_tpu(form, tmp_path):
    """Tables, predictions and an export (of dense features) equal NumPy with TensorFlow's ids."""
    features, computed = COMPUTED[form]
    ids = [ids_of_tensorflow(one, features) for one in computed]
    weights = [np.ones([4, 1], np.float32) for _ in computed]
    if form == "dense":
        of_ages = [[one] for one in np.digitize(AGE, BOUNDARIES)]
        assert [list(one) for one in ids[0]] == of_ages  # So TensorFlow's ids are right.
        # Weights may be dense too.
        heavy = tf.feature_column.weighted_categorical_column(buckets("heavy"), "weight")
        computed = [*computed, heavy]
        ids.append(of_ages)
        weights.append(DENSE["weight"])
    columns, tables = zip(*map(column_of, computed), strict=True)
    built = estimator(list(columns), tmp_path / "model")
    built.train(harness.input_fn_of([(features, LABELS)] * 2), steps=2)
    trained = harness.saved(tmp_path / "model", 2)
    rows = {}
    for column, table, ids_of_column, gains in zip(columns, tables, ids, weights, strict=True):
        # Two steps of SGD with learning rate 0.5. A sample's gradient is its label.
        for ids_of_sample, label, gain in [*zip(ids_of_column, LABELS, gains, strict=True)] * 2:
            np.subtract.at(table, ids_of_sample, 0.5 * label * gain)
        (saved,) = (trained[name] for name in trained if f"/{column.name}/" in name)
        np.testing.assert_allclose(saved, table, rtol=1e-6)
        rows[column.name] = np.stack([table[one].sum(0) for one in ids_of_column]) * gains
    predictions = list(built.predict(harness.input_fn_of([(features, LABELS)])))
    predicted = {name: [one[name] for one in predictions] for name in rows}
    harness.assert_same(predicted, rows, 1e-6, 0)
    if form == "dense":
        given = {key: tf.constant(value) for key, value in features.items()}
        inputs_of = {key: (one.dtype, [None, *one.shape[1:]]) for key, one in given.items()}
        serve = harness.exported(built, tmp_path / "out", harness.receiver_of(**inputs_of))
        harness.assert_same(serve(**given), rows, 1e-6, 0)


@pytest.mark.parametrize("computed", [buckets("age"), crossed()], ids=["buckets", "crossed"])
def test_computed_columns_are_refused_on_a_tpu(computed, tmp_path, assert_recorded):
    """A TPU looks up ids that input_fn gives. The message, in messages.json, says what to do."""
    column, _ = column_of(computed)
    said = harness.refusal(ValueError, estimator, [column], tmp_path, device="emulate")
    assert said.startswith(f"Column {column.name!r}: on a TPU, input_fn gives the ids of a table")
    assert_recorded(said)
