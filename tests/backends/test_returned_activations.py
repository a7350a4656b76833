# SPDX-License-Identifier: Apache-2.0
"""An activation that model_fn returns as it is, without any op of its own, is looked up too."""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee

TABLE = np.array([[1.0, -2.0], [0.5, 0.25], [-1.5, 3.0], [2.0, 0.75]], np.float32)
IDS = np.array([3, 0, 2, 1])


def spec():
    return harness.table_spec(4, 2, ee.StochasticGradientDescentParameters(0.5), TABLE)


def model_fn(features, labels, mode, params):
    x = features["x"]
    if mode == ee.ModeKeys.PREDICT:
        return harness.served(mode, a=x)
    return ee.TPUEstimatorSpec(
        mode,
        loss=tf.reduce_mean(labels["y"]),
        eval_metrics=(lambda a: {"sum": tf.compat.v1.metrics.mean(a)}, [x]),
    )


@pytest.mark.parametrize("cores", [None, 1, 2])
def test_what_model_fn_returns_as_it_is(cores, tmp_path):
    estimator = harness.estimator(model_fn, spec(), tmp_path, num_shards=cores)
    batches = harness.input_fn_of([({"x": IDS}, {"y": np.ones(4, np.float32)})])
    predicted = [one["a"] for one in estimator.predict(batches)]
    np.testing.assert_array_equal(predicted, TABLE[IDS])
    metrics = estimator.evaluate(batches, steps=1)
    assert metrics["sum"] == pytest.approx(TABLE.mean())


def test_an_exported_model_that_returns_it_as_it_is(tmp_path):
    def train_fn(features, labels, mode, params):
        if mode != ee.ModeKeys.TRAIN:
            return model_fn(features, labels, mode, params)
        return harness.gradient_model_fn(["x"])(features, labels, mode, params)

    estimator = harness.estimator(train_fn, spec(), tmp_path / "model")
    gradients = np.zeros([4, 2], np.float32)
    estimator.train(harness.input_fn_of([({"x": IDS}, {"x": gradients})]), steps=1)

    receive = harness.receiver_of(x=(tf.int64, [None]))
    served = harness.exported(estimator, tmp_path / "export", receive)
    np.testing.assert_array_equal(served(x=tf.constant(IDS))["a"], TABLE[IDS])
