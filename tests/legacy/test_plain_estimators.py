"""On an emulated TPU, a plain `Estimator` with a model_fn for TPU cores runs as one core."""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee

v1 = tf.compat.v1
X = np.array([1.0, 2.0, 5.0], np.float32)


@pytest.fixture(autouse=True)
def emulated(installed, monkeypatch):
    monkeypatch.setenv("ESTIMATOR_EMB_DEVICE", "host")


def sharded(loss, w):
    optimizer = v1.tpu.CrossShardOptimizer(v1.train.MomentumOptimizer(0.1, 0.5))
    return optimizer.minimize(loss, v1.train.get_global_step())


def summed(loss, w):
    """Sums the gradient over cores by hand, and also sums the loss over cores."""
    (gradient,) = tf.gradients(v1.tpu.cross_replica_sum(loss), w)
    optimizer = v1.train.MomentumOptimizer(0.1, 0.5)
    pairs = [(v1.tpu.cross_replica_sum(gradient), w)]
    return optimizer.apply_gradients(pairs, v1.train.get_global_step())


def estimator(train_op, model_dir):
    def model_fn(features, labels, mode):
        w = v1.get_variable("w", initializer=1.0)
        y = features["x"] * w
        if mode == ee.ModeKeys.PREDICT:
            return ee.EstimatorSpec(mode, predictions={"y": v1.tpu.cross_replica_sum(y)})
        loss = tf.reduce_sum(tf.square(y - 3.0))
        metrics = {"y": v1.metrics.mean(y)}
        step = train_op(loss, w) if mode == ee.ModeKeys.TRAIN else None
        return ee.EstimatorSpec(mode, loss=loss, train_op=step, eval_metric_ops=metrics)

    return ee.Estimator(model_fn, str(model_dir), ee.RunConfig(**harness.SILENT))


def input_fn():
    return tf.data.Dataset.from_tensors({"x": X}).repeat(2)


def test_an_emulated_core_trains_as_without_a_tpu(tmp_path):
    # The gradient of sum((x w - 3)^2) is 2 (30 w - 24).
    w, momentum = 1.0, 0.0
    for _ in range(2):
        momentum = 0.5 * momentum + 2 * (30 * w - 24)
        w -= 0.1 * momentum
    for train_op in (sharded, summed):
        made = estimator(train_op, tmp_path / train_op.__name__)
        made.train(input_fn, steps=2)
        saved = {"w": w, "w/Momentum": momentum, "global_step": 2}
        harness.assert_same(harness.saved(made.model_dir, 2), saved)
    # Both have the same model in other modes.
    y = np.float32(X * w)
    metrics = {"y": np.mean(y), "loss": np.sum(np.square(y - 3)), "global_step": 2}
    harness.assert_same(made.evaluate(input_fn), metrics)
    np.testing.assert_allclose([one["y"] for one in made.predict(input_fn)], [*y, *y], 1e-5)
    serve = harness.exported(made, tmp_path / "export", harness.receiver_of(x=(tf.float32, [None])))
    np.testing.assert_allclose(serve(tf.constant(X))["y"], y, 1e-5)
