# SPDX-License-Identifier: Apache-2.0
"""Labels or a feature of another batch size than the ids."""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee

SPEC = {
    "feature_to_config_dict": {"x": ee.FeatureConfig("t")},
    "table_to_config_dict": {"t": ee.TableConfig(4, 2, combiner="sum")},
    "optimization_parameters": ee.StochasticGradientDescentParameters(0.5),
}
REMEDY = (
    "All features and labels of a batch need the same number of samples: batch the dataset as a "
    "whole, with drop_remainder=True."
)


def model_fn(features, labels, mode, params):
    logits = tf.compat.v1.layers.dense(tf.concat([features["x"], features["d"]], 1), 1)
    loss = tf.reduce_mean(tf.square(logits - labels["y"]))
    optimizer = tf.compat.v1.tpu.CrossShardOptimizer(
        tf.compat.v1.train.GradientDescentOptimizer(0.1)
    )
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def train(tmp_path, cores, dense, labels):
    where = {} if cores is None else {"device": "host", "num_shards": cores}
    estimator = harness.estimator(model_fn, ee.EmbeddingConfigSpec(**SPEC), tmp_path, **where)
    features = {"x": np.array([0, 1, 2, 3]), "d": np.ones([dense, 1], np.float32)}
    batches = [(features, {"y": np.ones([labels, 1], np.float32)})]
    estimator.train(harness.input_fn_of(batches), steps=1)


@pytest.mark.parametrize("cores", [None, 1, 2])
@pytest.mark.parametrize(
    "dense, labels, said",
    [
        (4, 3, "labels['y'] has 3 samples, 4 expected."),
        (3, 4, "features['d'] has 3 samples, 4 expected."),
    ],
)
def test_it_is_named_with_the_remedy(cores, dense, labels, said, tmp_path):
    with pytest.raises(ValueError) as error:
        train(tmp_path, cores, dense, labels)
    first, *rest = str(error.value).splitlines()
    assert first.startswith("Dimension")  # TensorFlow's words.
    assert rest[-1] == f"{said} {REMEDY}"


@pytest.mark.parametrize("cores", [None, 1, 2])
def test_an_error_of_another_cause_stays_as_it_is(cores, tmp_path):
    def failing(features, labels, mode, params):
        raise ValueError("of the program")

    where = {} if cores is None else {"device": "host", "num_shards": cores}
    estimator = harness.estimator(failing, ee.EmbeddingConfigSpec(**SPEC), tmp_path, **where)
    features = {"x": np.array([0, 1, 2, 3])}
    batches = [(features, {"y": np.ones([4, 1], np.float32)})]
    with pytest.raises(ValueError) as error:
        estimator.train(harness.input_fn_of(batches), steps=1)
    assert str(error.value) == "of the program"


@pytest.mark.parametrize("cores", [None, 1])
def test_labels_of_one_sample_train_with_a_warning(cores, tmp_path, caplog):
    train(tmp_path, cores, 4, 1)
    said = [one.getMessage() for one in caplog.records if "1 sample" in one.getMessage()]
    assert said == [
        "labels['y'] has 1 sample, 4 expected: a loss may spread it over all of them. " + REMEDY
    ]


@pytest.mark.parametrize("cores", [None, 1, 2])
def test_labels_that_fit_train_without(cores, tmp_path, caplog):
    train(tmp_path, cores, 4, 4)
    assert not [one for one in caplog.records if "expected" in one.getMessage()]
