# SPDX-License-Identifier: Apache-2.0
"""Labels [B] that meet predictions [B, 1] are warned of; a loss of pairs that is meant is not."""

import harness
import numpy as np
import pytest
import tensorflow as tf

from estimator_emb.messages import console

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


def train(directory, loss, cores, static):
    def model_fn(features, labels, mode, params):
        logits = tf.compat.v1.layers.dense(features["x"], 1)
        loss_of_all = tf.reduce_mean(loss(logits, labels)) + tf.reduce_mean(logits)
        return harness.minimized(mode, loss_of_all)

    def input_fn(params):
        values = {"x": np.ones([8, 3], np.float32)}, np.ones([8], np.float32)
        data = tf.data.Dataset.from_tensor_slices(values)
        return data.batch(params["batch_size"], drop_remainder=static)

    harness.estimator(model_fn, None, directory, num_shards=cores).train(input_fn, max_steps=2)


@pytest.mark.parametrize("cores, size", [(None, 4), (None, None), (2, 2)])
@pytest.mark.parametrize("kind", MISTAKES)
def test_labels_that_spread(kind, cores, size, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(console, "_logged", set())
    loss = MISTAKES[kind]
    train(tmp_path, loss, cores, static=size is not None)
    (said,) = [one for one in harness.said(caplog) if "pairs" in one]
    begin, _, place = said.partition(" The op ")
    assert begin == (
        f"The loss of model_fn is of all pairs of samples: {kind} of ({size},), from labels, and "
        f"({size}, 1) gives ({size}, {size}). Give both one shape, as by tf.reshape(labels, "
        "[-1, 1]) or tf.squeeze(logits, 1)."
    )
    assert f"test_spread_labels.py, line {loss.__code__.co_firstlineno}, in <lambda>: " in place


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("kind", MEANT)
def test_what_is_meant(kind, static, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(console, "_logged", set())
    train(tmp_path, MEANT[kind], None, static)
    assert not [one for one in harness.said(caplog) if "pairs" in one]
