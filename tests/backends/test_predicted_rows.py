"""Predictions on an emulated TPU with rows that are not samples, compared with stock's slicing."""

import harness
import numpy as np
import pytest
import tensorflow as tf
from emulated_program import PIPELINES, make
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

import estimator_emb as ee

v1 = tf.compat.v1


def model_fn(features, labels, mode, params):
    v1.get_variable("w", initializer=1.0)
    predictions = {
        "x": features["x"] * 2.0,
        "core": tf.reshape(tf.reduce_max(features["x"]), [1]),
        "pairs": tf.reshape(features["x"] + [[0.0, 0.5]], [-1]),
    }
    return ee.TPUEstimatorSpec(mode, predictions=predictions)


def input_fn(params):
    xs = np.arange(10, dtype=np.float32)[:, None]
    return tf.data.Dataset.from_tensor_slices({"x": xs}).batch(params["batch_size"])


def sliced(rows, samples, size):
    """Returns the rows that stock yields from all cores' rows, for a batch of `samples`."""
    signals = {
        "padding_mask": tf.cast(tf.range(size) >= samples, tf.int32),
        "stopping": tf.fill([size, 1], False),
    }
    return tpu_estimator._PaddingSignals.slice_tensor_or_dict(tf.constant(rows), signals).numpy()


@pytest.mark.fast(3)
@pytest.mark.parametrize("pipeline", [PIPELINES.PER_HOST_V1, PIPELINES.PER_HOST_V2])
@pytest.mark.parametrize("cores", [1, 2, 4])
def test_rows_that_are_not_samples_are_sliced_like_samples(cores, pipeline, tmp_path):
    estimator = make(model_fn, tmp_path, cores, pipeline, batch=4)
    got = list(estimator.predict(input_fn, yield_single_examples=False))
    assert len(got) == 3
    for batch, predictions in enumerate(got):
        x = np.float32([[4 * batch + row] for row in range(4)])
        samples = min(4, 10 - 4 * batch)
        x[samples:] = 0
        if pipeline is PIPELINES.PER_HOST_V2:
            # A core without a batch gets the first batch again.
            for start in range(0, 4, 4 // cores):
                if start >= samples:
                    x[start : start + 4 // cores, 0] = range(4 // cores)
        rows = {
            "x": x * 2,
            "core": x.reshape(cores, -1).max(1),
            "pairs": (x + np.float32([[0, 0.5]])).reshape(-1),
        }
        want = {name: sliced(value, samples, 4) for name, value in rows.items()}
        assert {name: value.shape for name, value in predictions.items()} == {
            name: value.shape for name, value in want.items()
        }
        for name, value in want.items():
            np.testing.assert_array_equal(predictions[name], value, name)
    if cores > 1:
        message = harness.refusal(ValueError, list, estimator.predict(input_fn))
        assert message.startswith("Batch length of predictions should be same.")
