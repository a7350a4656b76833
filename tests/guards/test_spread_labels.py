"""Labels [B] that broadcast against predictions [B, 1] cause a warning. Intended pairs do not."""

import re

import harness
import numpy as np
import pytest
import tensorflow as tf

MISTAKES = {
    "Sub": lambda logits, labels: logits - labels,
    "SquaredDifference": lambda logits, labels: tf.math.squared_difference(labels, logits),
    "Mul": lambda logits, labels: labels * tf.math.log_sigmoid(logits),
}
MEANT = {
    "one shape": lambda logits, labels: logits - labels[:, None],
    "one dimension": lambda logits, labels: logits[:, 0] - labels,
    "a column of sums": lambda logits, labels: logits * tf.zeros([4]) + labels[:, None],
    "pairs of labels": lambda logits, labels: tf.reshape(labels, [-1, 1]) - labels,
    "pairs of predictions": lambda logits, labels: logits - logits[:, 0],
    "pairs, made in place": lambda logits, labels: logits[:, 0] - labels[:, None],
    "pairs with one weight": lambda logits, labels: (logits - logits[:, 0]) * labels,
    "a constant of four": lambda logits, labels: tf.reshape(labels, [-1, 1]) * [1.0, 2, 3, 4],
    "a number": lambda logits, labels: logits - tf.reduce_mean(labels),
    "a size": lambda logits, labels: logits * tf.ones(tf.shape(labels)),
    "Keras": lambda logits, labels: tf.keras.losses.MeanSquaredError()(labels, logits),
}


def told_of(losses, directory, cores, static, caplog):
    """Trains on the sum of the losses, and returns the warnings."""

    def model_fn(features, labels, mode, params):
        logits = tf.compat.v1.layers.dense(features["x"], 1)
        means = [tf.reduce_mean(loss(logits, labels)) for loss in losses.values()]
        return harness.minimized(mode, tf.add_n([tf.reduce_mean(logits), *means]))

    def input_fn(params):
        values = {"x": np.ones([8, 3], np.float32)}, np.ones([8], np.float32)
        data = tf.data.Dataset.from_tensor_slices(values)
        return data.batch(params["batch_size"], drop_remainder=static)

    harness.estimator(model_fn, None, directory, num_shards=cores).train(input_fn, max_steps=2)
    return [one for one in harness.said(caplog) if "pairs" in one]


@pytest.mark.fast(2)
@pytest.mark.parametrize("cores, size", [(None, 4), (None, None), (2, 2)])
def test_labels_that_broadcast_cause_a_warning(cores, size, tmp_path, caplog):
    told = told_of(MISTAKES, tmp_path, cores, size is not None, caplog)
    of_lines = {
        int(re.search(r"labels.py, line (\d+), in <lambda>: ", one)[1]): one for one in told
    }
    assert len(told) == len(MISTAKES)
    for kind, loss in MISTAKES.items():
        assert of_lines[loss.__code__.co_firstlineno].startswith(
            f"The loss of model_fn is of all pairs of samples: {kind} of ({size},), from labels, "
            f"and ({size}, 1) gives ({size}, {size})."
        )


@pytest.mark.fast(1)
@pytest.mark.parametrize("static", [False, True])
def test_intended_pairs_cause_no_warning(static, tmp_path, caplog):
    assert told_of(MEANT, tmp_path, None, static, caplog) == []
