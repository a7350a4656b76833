"""How a model may use the activations of its tables."""

import harness
import numpy as np
import tensorflow as tf

import estimator_emb as ee


def test_an_activation_cast_to_another_float_is_not_read_as_ids(tmp_path, caplog):
    def model_fn(features, labels, mode, params):
        halves = tf.cast(features["x"], tf.bfloat16)
        samples = tf.cast(tf.shape(features["x"])[0], tf.float32)
        return harness.minimized(mode, tf.cast(tf.reduce_sum(halves), tf.float32) / samples)

    spec = harness.table_spec(4, 2, ee.AdagradParameters(0.1))
    batch = {"x": np.arange(4)}, np.zeros(4, np.float32)
    harness.estimator(model_fn, spec, tmp_path).train(harness.input_fn_of([batch]))
    assert [line for line in harness.said(caplog) if "as ids" in line] == []
