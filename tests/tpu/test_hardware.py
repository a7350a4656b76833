# SPDX-License-Identifier: Apache-2.0
"""Training on a TPU v2 to v4, beside the golden vectors and the host engine.

With tables on its host, on any TPU. Left out unless asked for; see docs/tpu.md:

    TPU_NAME=... python -m pytest -m tpu tests/tpu
    TPU_NAME=... python -m pytest -m tpu tests/tpu -k tables_on_its_host
"""

import golden_training
import harness
import numpy as np
import pytest
import tensorflow as tf
from golden_training import GOLDEN, SAMPLES

import estimator_emb as ee

pytestmark = pytest.mark.tpu

TOLERANCE = {"AdagradMomentum": 1e-3, "Adam": 1e-4, "Ftrl": 5e-4}
"""Of TensorFlow's own tests on TPUs, which take powers and roots less exactly; otherwise 1e-5."""


def estimator(tpu, model_fn, spec, model_dir, samples, tables=None, loop=1):
    resolver, _ = tpu
    return harness.configured(
        model_fn,
        spec,
        ee.RunConfig(
            cluster=resolver,
            model_dir=str(model_dir),
            save_summary_steps=None,
            save_checkpoints_steps=1,
            keep_checkpoint_max=None,
            tpu_config=ee.TPUConfig(iterations_per_loop=loop, tables=tables),
        ),
        samples,
        use_tpu=True,
    )


def samples_for(cores):
    """The golden batch, or more where there are more cores than it has samples."""
    return cores * -(-SAMPLES // cores)


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_golden_case(case, tpu, tmp_path):
    _, cores = tpu
    shards = case["hyper"].get("num_shards", cores)
    if shards != cores:
        pytest.skip(
            f"without accumulation the result depends on the cores: {shards} are meant, the TPU "
            f"has {cores}"
        )
    spec = golden_training.spec_of(case)
    dimension, samples = spec.table_to_config_dict["t0"].dimension, samples_for(cores)
    trained = estimator(tpu, harness.gradient_model_fn(["x0"]), spec, tmp_path, samples)
    data = golden_training.batches(dimension, samples=samples)
    trained.train(harness.input_fn_of(data), max_steps=3)
    golden_training.check_steps(case, tmp_path, TOLERANCE.get(case["optimizer"], 1e-5))


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_activations(combiner, tpu, tmp_path):
    _, cores = tpu
    samples = samples_for(cores)
    table = golden_training.table_of(np.array(GOLDEN["table"], np.float32), combiner)
    spec = golden_training.spec_of_tables({"t0": table})

    def model_fn(features, labels, mode, params):
        spec = harness.gradient_model_fn(["x0"])(features, labels, mode, params)
        if mode == ee.ModeKeys.TRAIN:
            return spec
        # The mean over the one batch that is evaluated: the activations themselves.
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


def shared_and_sequence_features(samples, strategy="div"):
    """Returns (spec, keys of the features, four batches)."""
    rng = np.random.default_rng(7)
    table = rng.normal(size=[11, 3]).astype(np.float32)

    def rows(longest):
        return harness.sparse(
            [rng.integers(0, 11, rng.integers(0, longest + 1)) for _ in range(samples)]
        )

    data = [
        (
            {"words": rows(4), "history": rows(3), "item": rng.integers(0, 11, samples)},
            {
                "words": rng.normal(size=[samples, 3]).astype(np.float32),
                "history": rng.normal(size=[samples, 2, 3]).astype(np.float32),
                "item": rng.normal(size=[samples, 3]).astype(np.float32),
            },
        )
        for _ in range(4)
    ]
    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={
            "words": ee.FeatureConfig("t"),
            "history": ee.FeatureConfig("t", max_sequence_length=2),
            "item": ee.FeatureConfig("t"),
        },
        table_to_config_dict={
            "t": ee.TableConfig(11, 3, initializer=harness.initializer(table), combiner="mean")
        },
        optimization_parameters=ee.AdagradParameters(0.3, initial_accumulator=0.2),
        clipping_limit=1.5,
        partition_strategy=strategy,
    )
    return spec, ["words", "history", "item"], data


def check_as_on_the_host(tpu, tmp_path, strategy="div", **kwargs):
    _, cores = tpu
    samples = 2 * cores
    spec, keys, data = shared_and_sequence_features(samples, strategy)
    model_fn = harness.gradient_model_fn(keys)
    on_tpu = estimator(tpu, model_fn, spec, tmp_path / "tpu", samples, **kwargs)
    on_tpu.train(harness.input_fn_of(data), max_steps=4)
    on_host = harness.estimator(model_fn, spec, tmp_path / "host", samples, device="host")
    on_host.train(harness.input_fn_of(data), max_steps=4)
    got, expected = (harness.saved(tmp_path / where, 4) for where in ("tpu", "host"))
    for name in ("t", "t/Adagrad"):
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_shared_and_sequence_features_train_as_on_the_host(strategy, tpu, tmp_path):
    check_as_on_the_host(tpu, tmp_path, strategy)


@pytest.mark.parametrize("loop", [1, 4])
def test_any_tpu_trains_tables_on_its_host(loop, tpu, tmp_path):
    check_as_on_the_host(tpu, tmp_path, tables="host", loop=loop)
