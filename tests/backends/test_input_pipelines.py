# SPDX-License-Identifier: Apache-2.0
"""What input_fn may return, under each way of reading input, with a last batch that is smaller."""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb import InputPipelineConfig

START = np.arange(10, dtype=np.float32).reshape(5, 2)


def make(model_dir, device, per_host):
    spec = harness.table_spec(5, 2, ee.StochasticGradientDescentParameters(0.5), START)
    config = ee.RunConfig(
        model_dir=str(model_dir),
        tpu_config=ee.TPUConfig(device=device, per_host_input_for_training=per_host),
    )
    return harness.configured(
        harness.gradient_model_fn(["x"]), spec, config, 2, use_tpu=device is not None
    )


BATCHES = [
    ({"x": harness.sparse([[1, 3], []])}, {"x": np.array([[1, 2], [50, 60]], np.float32)}),
    ({"x": harness.sparse([[3], [0, 3]])}, {"x": np.array([[3, 4], [5, 6]], np.float32)}),
    ({"x": harness.sparse([[4, 4, 1]])}, {"x": np.array([[7, 8]], np.float32)}),
]


def dataset(params):
    assert params["batch_size"] == 2
    return harness.dataset(BATCHES)


def full_batches(params):
    """Whose shapes are static, as a TPU asks for."""
    return dataset(params).take(2).map(_static)


def _static(features, labels):
    return features, {"x": tf.ensure_shape(labels["x"], [2, 2])}


def tensors_of(input_fn):
    def tensors(params):
        return tf.compat.v1.data.make_one_shot_iterator(input_fn(params)).get_next()

    return tensors


def features_alone(params):
    return dataset(params).map(lambda features, labels: features)


@pytest.mark.slow
@pytest.mark.parametrize(
    "device, per_host, input_fn",
    [
        (None, InputPipelineConfig.PER_HOST_V1, tensors_of(dataset)),
        (None, InputPipelineConfig.PER_HOST_V2, dataset),
        ("host", InputPipelineConfig.PER_HOST_V1, tensors_of(full_batches)),
        ("host", InputPipelineConfig.PER_HOST_V2, full_batches),
        ("host", True, tensors_of(full_batches)),
    ],
)
def test_trains_evaluates_and_predicts(device, per_host, input_fn, tmp_path):
    """Empty samples give zeros, and take no gradient."""
    batches = BATCHES if device is None else BATCHES[:2]
    estimator = make(tmp_path, device, per_host)
    estimator.train(input_fn, steps=len(batches))
    want = START.copy()
    for features, labels in batches:
        for (sample, _), i in zip(features["x"].indices, features["x"].values, strict=True):
            want[i] -= 0.5 * labels["x"][sample]
    np.testing.assert_allclose(estimator.get_variable_value("t"), want, rtol=1e-6)

    activations = [
        sum(
            (want[i] for i in features["x"].values[features["x"].indices[:, 0] == sample]),
            np.zeros(2),
        )
        for features, labels in BATCHES
        for sample in range(len(labels["x"]))
    ]
    labels = np.concatenate([labels["x"] for _, labels in batches])
    metrics = estimator.evaluate(input_fn, steps=len(batches))
    loss = np.sum(activations[: len(labels)] * labels) / len(batches)
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-6)
    got = [one["x"] for one in estimator.predict(features_alone)]
    assert len(got) == 5
    np.testing.assert_allclose(got, activations, rtol=1e-6)
