# SPDX-License-Identifier: Apache-2.0
"""An activation that model_fn returns as it is, without any op of its own, is looked up too."""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee

TABLE = np.array([[1.0, -2.0], [0.5, 0.25], [-1.5, 3.0], [2.0, 0.75]], np.float32)
IDS = np.array([3, 0, 2, 1])


def model_fn(features, labels, mode, params):
    x = features["x"]
    if mode == ee.ModeKeys.PREDICT:
        return ee.TPUEstimatorSpec(mode, predictions={"a": x})
    return ee.TPUEstimatorSpec(
        mode,
        loss=tf.reduce_mean(labels["y"]),
        eval_metrics=(lambda a: {"sum": tf.compat.v1.metrics.mean(a)}, [x]),
    )


@pytest.mark.parametrize("cores", [None, 1, 2])
def test_what_model_fn_returns_as_it_is(cores, tmp_path):
    spec = harness.table_spec(4, 2, ee.StochasticGradientDescentParameters(0.5), TABLE)
    estimator = harness.estimator(model_fn, spec, tmp_path, num_shards=cores)
    batches = harness.input_fn_of([({"x": IDS}, {"y": np.ones(4, np.float32)})])
    predicted = [one["a"] for one in estimator.predict(batches)]
    np.testing.assert_array_equal(predicted, TABLE[IDS])
    metrics = estimator.evaluate(batches, steps=1)
    assert metrics["sum"] == pytest.approx(TABLE.mean())
