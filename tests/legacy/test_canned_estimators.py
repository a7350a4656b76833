# SPDX-License-Identifier: Apache-2.0
"""A program of `tf.estimator` runs again without a TPU: canned estimators train and evaluate."""

import numpy as np
import pytest
import tensorflow as tf

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("installed")]


def input_fn():
    features = {"hour": np.float32([1, 2, 3, 4]), "item": ["a", "b", "a", "c"]}
    return tf.data.Dataset.from_tensors((features, [0, 1, 0, 1])).repeat(100)


def arguments(name):
    item = tf.feature_column.categorical_column_with_hash_bucket("item", 100)
    dense = [
        tf.feature_column.numeric_column("hour"),
        tf.feature_column.embedding_column(item, dimension=8),
    ]
    if name.startswith("DNNLinearCombined"):
        return {
            "linear_feature_columns": [item],
            "dnn_feature_columns": dense,
            "dnn_hidden_units": [8],
        }
    if name.startswith("DNN"):
        return {"hidden_units": [8], "feature_columns": dense}
    return {"feature_columns": [dense[0], item]} if name.startswith("Linear") else {}


@pytest.mark.parametrize("kind", ["Classifier", "Regressor"])
@pytest.mark.parametrize("model", ["DNN", "Linear", "DNNLinearCombined", "Baseline"])
def test_canned_estimator(model, kind, tmp_path):
    name = model + kind
    estimator = getattr(tf.estimator, name)(model_dir=str(tmp_path), **arguments(name))
    estimator.train(input_fn, max_steps=3)
    metrics = estimator.evaluate(input_fn, steps=1)
    assert metrics["global_step"] == 3
    assert np.isfinite(metrics["loss"])
