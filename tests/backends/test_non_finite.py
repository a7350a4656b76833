# SPDX-License-Identifier: Apache-2.0
"""Gradients that are infinite or NaN, in whole trainings, beside NumPy; `fuzz` has more."""

import harness
import numpy as np
import pytest
import reference
import servers
import tensorflow as tf
from host_engine import on_both_kernels

import estimator_emb as ee

SAMPLES, ROWS, DIMENSION, STEPS, LIMIT, RATE = 8, 5, 3, 2, 1.5, 0.5
START = np.arange(ROWS * DIMENSION, dtype=np.float32).reshape(ROWS, DIMENSION) / 8
IDS = np.array([[0, 1, 2, 3, 3, 1, 0, 2], [4, 2, 3, 0, 1, 3, 2, 0]])


def gradients():
    """Each row has finite ones beside those that are not, which other cores have."""
    made = np.random.default_rng(5).integers(-16, 17, [STEPS, SAMPLES, DIMENSION]) / 8
    made[0, 0, 0], made[0, 1, 1], made[0, 2, 2] = np.inf, -np.inf, np.nan
    made[1, 1, 0], made[1, 5, 1], made[1, 7, 2] = -np.inf, np.nan, np.inf
    return made.astype(np.float32)


def expected(cores):
    """The table and its accumulator after the last step; `cores` > 1 take turns."""
    w, a = START.astype(np.float64), np.full(START.shape, 0.25)
    for ids, of_batch in zip(IDS, gradients(), strict=True):
        for row, g in reference.updates(
            ids[:, None], np.ones([SAMPLES, 1]), of_batch, "sum", cores
        ):
            clipped = np.clip(g, -LIMIT, LIMIT)
            w[row], a[row] = reference.step(reference.adagrad, RATE, clipped, w[row], [a[row]])
    return w, a


def model_fn(features, labels, mode, params):
    """The labels are the gradients of the activation, and the loss is finite all the same."""
    optimizer = tf.compat.v1.tpu.CrossShardOptimizer(
        tf.compat.v1.train.GradientDescentOptimizer(1.0),
        reduction=tf.compat.v1.losses.Reduction.SUM,
    )
    train_op = optimizer.minimize(
        features["x"], tf.compat.v1.train.get_global_step(), grad_loss=labels
    )
    return ee.TPUEstimatorSpec(mode, loss=tf.reduce_sum(tf.zeros_like(labels)), train_op=train_op)


def input_fn(params):
    data = tf.data.Dataset.from_tensor_slices((IDS, gradients()))
    data = data.map(lambda ids, labels: ({"x": ids}, labels)).unbatch()
    return data.batch(params["batch_size"], drop_remainder=True)


WAYS = (
    ("2 cores", False, False, None),
    ("8 cores", True, False, 1),
    pytest.param("host", True, True, 1, marks=pytest.mark.slow),
    pytest.param("servers", False, False, None, marks=pytest.mark.slow),
)


@on_both_kernels
@pytest.mark.parametrize("way, pipelined, accumulates, summaries", WAYS)
def test_trains_as_numpy(way, pipelined, accumulates, summaries, tmp_path):
    config = servers.config_of(
        way, tmp_path, save_checkpoints_steps=1, save_summary_steps=summaries
    )
    spec = harness.table_spec(
        ROWS,
        DIMENSION,
        ee.AdagradParameters(RATE, 0.25, use_gradient_accumulation=accumulates),
        START,
        clipping_limit=LIMIT,
        pipeline_execution_with_tensor_core=pipelined,
    )
    estimator = harness.configured(model_fn, spec, config, SAMPLES, use_tpu="core" in way)
    estimator.train(input_fn, steps=STEPS)
    got = harness.saved(tmp_path, STEPS)
    want = expected(int(way[0]) if "core" in way and not accumulates else 1)
    assert all(np.isnan(one).any() and np.isfinite(one).mean() > 0.5 for one in want)
    for name, values in zip(["t", "t/Adagrad"], want, strict=True):
        np.testing.assert_allclose(got[name], values, rtol=1e-6, err_msg=name)
