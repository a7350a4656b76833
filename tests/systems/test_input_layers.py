"""Sequences, and ids without combiner, through the input layers, forward and backward.

NumPy computes the expected tables after one SGD step of rate 1, and the activations after it. For
other columns see `laws` and `beside_stock`, which compares with stock tensorflow-estimator.
For random sequences by key see `laws`.
"""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc

LAYERS = {
    "dense_features": lambda columns, features: [fc.DenseFeatures(columns)(features)],
    "input_layer": lambda columns, features: [fc.input_layer(features, columns)],
    "sequence_features": lambda columns, features: fc.SequenceFeatures(columns)(features),
    "sequence_input_layer": lambda columns, features: fc.sequence_input_layer(features, columns),
}
"""Scope of the tables -> function that returns [activations], or [activations, lengths]."""
WORDS = ["ant", "bee", "cat", "dog", "eel", "fox"]
KNOWN = [*WORDS[:4], "gnu", "hen"]
SEQUENCES = [[0, 5, 1, 0], [], [3], [4, 3, 3], [2, 2]]
LIMIT = 3


def check(layer, columns, features, ids, tmp_path):
    """Trains a step and predicts, and compares both with NumPy. Returns the predictions.

    Args:
      layer: of LAYERS.
      columns: {feature: function of an initializer that returns the column}.
      features: of the batch.
      ids: {name: ids [samples, ...] that the model sees, -1 for a missing id}.
      tmp_path: for the model.
    """
    rng = np.random.default_rng(1)
    start = {key: harness.normal(rng, 6, 2 + i) for i, key in enumerate(columns)}
    made = [make(harness.initializer(start[key])) for key, make in columns.items()]
    (shape,) = {one.shape for one in ids.values()}
    labels = harness.normal(rng, *shape, sum(one.shape[1] for one in start.values()))

    def model_fn(features, labels, mode, params):
        outputs = dict(zip(("output", "lengths"), LAYERS[layer](made, features), strict=False))
        if mode == ee.ModeKeys.PREDICT:
            return ee.TPUEstimatorSpec(mode, outputs)
        return harness.minimized(mode, tf.reduce_sum(outputs["output"] * labels))

    spec = ee.EmbeddingConfigSpec(made, ee.StochasticGradientDescentParameters(1.0))
    estimator = harness.estimator(model_fn, spec, tmp_path, batch_size=len(labels))
    input_fn = harness.input_fn_of([(features, labels)])
    estimator.train(input_fn, steps=1)
    saved, activations, first = harness.saved(tmp_path, 1), [], 0
    for key, table in start.items():
        after = np.vstack([table, np.zeros([1, table.shape[1]])])
        gradient = labels[..., first : first + table.shape[1]]
        np.subtract.at(after, ids[key], gradient)
        after[-1] = 0  # Value of a lookup of -1.
        of_table = saved[f"{layer}/{key}_embedding/embedding_weights"]
        np.testing.assert_allclose(of_table, after[:-1], atol=1e-6, err_msg=key)
        activations.append(after[ids[key]])
        first += table.shape[1]
    predicted = list(estimator.predict(input_fn))
    outputs = [one["output"] for one in predicted]
    np.testing.assert_allclose(outputs, np.concatenate(activations, axis=-1), atol=1e-6)
    return predicted


@pytest.mark.fast(1)
@pytest.mark.parametrize("layer", ["sequence_features", "sequence_input_layer"])
def test_input_layers_train_sequences(layer, tmp_path):
    """Long sequences are cut. An unknown word takes a position and counts in the length."""
    categorical = {
        "numbers": fc.sequence_categorical_column_with_identity("numbers", 6),
        "words": fc.sequence_categorical_column_with_vocabulary_list("words", KNOWN),
    }
    columns = {
        key: lambda start, one=one, size=2 + i: fc.embedding_column(
            one, size, initializer=start, max_sequence_length=LIMIT
        )
        for i, (key, one) in enumerate(categorical.items())
    }
    words = [[WORDS[i] for i in row] for row in SEQUENCES]
    features = {"numbers": harness.sparse(SEQUENCES), "words": harness.sparse(words, object)}
    numbers = harness.matrix([row[:LIMIT] for row in SEQUENCES], LIMIT)
    ids = {"numbers": numbers, "words": np.where(numbers < 4, numbers, -1)}
    predicted = check(layer, columns, features, ids, tmp_path)
    assert [one["lengths"] for one in predicted] == [3, 0, 1, 3, 2]


@pytest.mark.parametrize("layer", ["dense_features", "input_layer"])
def test_input_layers_train_a_dense_column_without_combiner(layer, tmp_path):
    """With combiner None, each sample has one id, and id 0 is valid."""
    categorical = fc.categorical_column_with_identity("x", 6)
    columns = {
        "x": lambda start: fc.embedding_column(categorical, 2, combiner=None, initializer=start)
    }
    ids = {"x": np.array([0, 4, 0])}
    check(layer, columns, ids, ids, tmp_path)
