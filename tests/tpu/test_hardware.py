"""Training on a TPU v2 to v4, or by PJRT on any TPU or GPU, equals golden values and the host.

These tests run only on request (see docs/tpu.md):

    TPU_NAME=... python -m pytest -m tpu tests/tpu
    ESTIMATOR_EMB_PJRT_PLATFORM=gpu python -m pytest -m tpu tests/tpu -k by_pjrt
"""

import os

import golden_training
import harness
import numpy as np
import pytest
import tensorflow as tf
from golden_training import GOLDEN, SAMPLES

import estimator_emb as ee

pytestmark = pytest.mark.tpu

TOLERANCE = {"AdagradMomentum": 1e-3, "Adam": 1e-4, "Ftrl": 5e-4}
"""Tolerances of TensorFlow's own tests: TPUs take powers and roots less exactly. Others: 1e-5."""


def estimator(tpu, model_fn, spec, model_dir, samples):
    """Returns a TPUEstimator that trains on the TPU, and saves each step."""
    resolver, _ = tpu
    run = {**harness.EACH_STEP, "cluster": resolver}
    return harness.estimator(model_fn, spec, model_dir, samples, run=run, use_tpu=True)


def samples_for(cores):
    """Returns SAMPLES raised to a multiple of `cores`. Further samples have no ids or gradients."""
    return cores * -(-SAMPLES // cores)


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_golden_cases_train_on_a_tpu(case, tpu, tmp_path):
    _, cores = tpu
    shards = case["hyper"].get("num_shards", cores)
    if shards != cores:
        pytest.skip(f"the golden values are those of {shards} cores, the TPU has {cores}")
    spec = golden_training.spec_of(case)
    dimension, samples = spec.table_to_config_dict["t0"].dimension, samples_for(cores)
    trained = estimator(tpu, harness.gradient_model_fn(["x0"]), spec, tmp_path, samples)
    data = golden_training.batches(dimension, samples=samples)
    trained.train(harness.input_fn_of(data), max_steps=3)
    tolerance = TOLERANCE.get(case["optimizer"], 1e-5)
    # Compares the table and its slots after each step.
    golden_training.assert_steps_equal_golden(case, tmp_path, tolerance)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_activations_on_a_tpu_equal_golden(combiner, tpu, tmp_path):
    _, cores = tpu
    samples = samples_for(cores)
    table = golden_training.table_of(np.array(GOLDEN["table"], np.float32), combiner)
    spec = golden_training.spec_of_tables({"t0": table})

    def model_fn(features, labels, mode, params):
        spec = harness.gradient_model_fn(["x0"])(features, labels, mode, params)
        if mode == ee.ModeKeys.TRAIN:
            return spec
        # The mean over a single batch is the activations themselves.
        metrics = (lambda x: {"x": tf.compat.v1.metrics.mean_tensor(x)}, [features["x0"]])
        return ee.TPUEstimatorSpec(mode, loss=spec.loss, eval_metrics=metrics)

    data = golden_training.batches(2, samples=samples, gradients=False)
    trained = estimator(tpu, model_fn, spec, tmp_path, samples)
    trained.train(harness.input_fn_of(data), max_steps=1)
    expected = GOLDEN["pipeline"][combiner]["activations_initial_table"]
    for batch, of_batch in zip(data, expected, strict=True):
        got = trained.evaluate(harness.input_fn_of([batch]), steps=1)["x"]
        np.testing.assert_allclose(got[:SAMPLES], of_batch, rtol=1e-6)
        np.testing.assert_array_equal(got[SAMPLES:], 0)


KEYS = ["words", "history", "item"]


def shared_and_sequence_features(samples, strategy="div"):
    """Returns a spec with the features KEYS, and four batches."""
    rng = np.random.default_rng(7)
    table = harness.normal(rng, 11, 3)

    def ids(rng, key, rows):
        if key == "item":
            return rng.integers(0, rows, samples)
        return harness.sparse(harness.random_ids(rng, rows, samples, 4 if key == "words" else 3))

    features = {key: ee.FeatureConfig("t") for key in KEYS}
    features["history"] = ee.FeatureConfig("t", max_sequence_length=2)
    adagrad, fields = ee.AdagradParameters(0.3, initial_accumulator=0.2), {"clipping_limit": 1.5}
    spec = harness.table_spec(11, 3, adagrad, table, "mean", partition_strategy=strategy, **fields)
    spec = spec._replace(feature_to_config_dict=features)
    return spec, harness.random_batches(rng, spec, samples, 4, ids)


@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_shared_and_sequence_features_train_as_on_the_host(strategy, tpu, tmp_path):
    _, cores = tpu
    samples = 2 * cores
    spec, data = shared_and_sequence_features(samples, strategy)
    model_fn = harness.gradient_model_fn(KEYS)
    on_tpu = estimator(tpu, model_fn, spec, tmp_path / "tpu", samples)
    on_tpu.train(harness.input_fn_of(data), max_steps=4)
    on_host = harness.estimator(model_fn, spec, tmp_path / "host", samples, device="host")
    on_host.train(harness.input_fn_of(data), max_steps=4)
    got, expected = (harness.saved(tmp_path / where, 4) for where in ("tpu", "host"))
    for name in ("t", "t/Adagrad"):
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-5, atol=1e-5)


@pytest.fixture
def pjrt_devices():
    """Returns the GPUs or TPUs that jax finds, or the devices of ESTIMATOR_EMB_PJRT_PLATFORM."""
    jax = pytest.importorskip("jax")
    platform = os.environ.get("ESTIMATOR_EMB_PJRT_PLATFORM")
    found = jax.local_devices(backend=platform or None)
    if not platform and found[0].platform == "cpu":
        pytest.skip(f"jax finds no GPU and no TPU, but {found}")
    return found


def dense_model_fn(features, labels, mode, params):
    """Two layers over activations, trained by Adam."""
    x = tf.concat([features["words"], tf.reduce_sum(features["history"], 1), features["item"]], 1)
    weights = tf.compat.v1.get_variable("weights", initializer=harness.normal(3, 9, 4))
    out = tf.compat.v1.get_variable("out", initializer=harness.normal(3, 4, 1))
    predicted = tf.matmul(tf.tanh(tf.matmul(x, weights)), out)[:, 0]
    loss = tf.reduce_mean(tf.square(predicted - labels["words"][:, 0]))
    return harness.minimized(mode, loss, optimizer=tf.compat.v1.train.AdamOptimizer(0.1))


@pytest.mark.parametrize("loop", [1, 4])
def test_the_model_by_pjrt_trains_as_on_the_host(loop, pjrt_devices, tmp_path):
    """GPUs and TPUs multiply matrices less exactly, unless the device is told otherwise."""
    cores = len(pjrt_devices)
    samples = 2 * cores
    spec, data = shared_and_sequence_features(samples)
    run, tpu = harness.SILENT, {"iterations_per_loop": loop}
    for device in ("pjrt", "host"):
        place = tmp_path / device, samples, device, cores
        trained = harness.estimator(dense_model_fn, spec, *place, run, tpu)
        trained.train(harness.input_fn_of(data), max_steps=4)
    got, expected = (harness.saved(tmp_path / device, 4) for device in ("pjrt", "host"))
    harness.assert_same(got, expected, 1e-3, 1e-3)
