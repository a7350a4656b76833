# SPDX-License-Identifier: Apache-2.0
"""The golden vectors, through a whole TPUEstimator on the host."""

import json
import pathlib

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb import optimizers

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden.json").read_text())

CLASSES = {
    "Sgd": optimizers.StochasticGradientDescentParameters,
    "Adagrad": optimizers.AdagradParameters,
    "AdagradMomentum": optimizers.AdagradMomentumParameters,
    "Adam": optimizers.AdamParameters,
    "Ftrl": optimizers.FtrlParameters,
    "Momentum": optimizers.MomentumParameters,
    "RmsProp": optimizers.RMSPropParameters,
    "CenteredRmsProp": optimizers.CenteredRMSPropParameters,
    "Adadelta": optimizers.AdadeltaParameters,
    "ProximalAdagrad": optimizers.ProximalAdagradParameters,
    "ProximalYogi": optimizers.ProximalYogiParameters,
    "FrequencyEstimator": optimizers.FrequencyEstimatorParameters,
}
RENAMED = {
    "l1": "l1_regularization_strength",
    "l2": "l2_regularization_strength",
}


def parameters_of(case):
    """The case's optimizer, and its learning rates where they change from step to step."""
    hyper = dict(case["hyper"])
    hyper.pop("combiner")
    hyper.pop("num_shards", None)
    arguments = {}
    for limit in ("clip_gradient", "clip_weight"):
        low, high = hyper.pop(limit, (None, None))
        arguments |= {f"{limit}_min": low, f"{limit}_max": high}
    rate = hyper.pop("learning_rate")
    rates = rate if isinstance(rate, list) else None
    if case["optimizer"] == "CenteredRmsProp":
        assert hyper.pop("initial_ms") == 0
    cls = CLASSES[case["optimizer"]]
    if case["optimizer"] == "FrequencyEstimator":
        arguments = {}
    else:
        arguments["learning_rate"] = 0.5 if rates else rate
    for name, value in hyper.items():
        name = RENAMED.get(name, name)
        if name == "initial_accumulator" and case["optimizer"] in ("Ftrl", "ProximalYogi"):
            name = "initial_accumulator_value"
        arguments[name] = value
    return cls(**arguments), rates


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_golden_case(case, tmp_path):
    parameters, rates = parameters_of(case)
    table = np.array(case["table"], np.float32)
    shards = case["hyper"].get("num_shards", 1)
    rate_fn = (lambda step: tf.gather(tf.constant(rates), step)) if rates else None
    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={"x": ee.FeatureConfig("t", weight_key="w")},
        table_to_config_dict={
            "t": ee.TableConfig(
                table.shape[0],
                table.shape[1],
                initializer=harness.initializer(table),
                combiner=case["hyper"]["combiner"],
                learning_rate_fn=rate_fn,
            )
        },
        optimization_parameters=parameters,
    )
    batches = [
        (
            {
                "x": harness.sparse(step["ids"]),
                "w": harness.sparse(step["weights"], np.float32),
            },
            {"x": np.array(step["act_grad"], np.float32)[:, : table.shape[1]]},
        )
        for step in GOLDEN["steps"]
    ]
    estimator = harness.estimator(
        harness.gradient_model_fn(["x"]), spec, tmp_path, device="host", num_shards=shards
    )
    estimator.train(harness.input_fn_of(batches), steps=3)

    for step in (1, 2, 3):
        got = harness.saved(tmp_path, step)
        expected = dict(case["f32"][f"step{step}"])
        assert set(got) == {"global_step", "t"} | {"t" + slot.suffix for slot in parameters.slots}
        np.testing.assert_allclose(got["t"], expected.pop("parameters"), atol=1e-5, rtol=1e-5)
        assert len(expected) == len(parameters.slots)
        for slot in parameters.slots:
            np.testing.assert_allclose(
                got["t" + slot.suffix], expected[slot.name], atol=1e-5, rtol=1e-5,
                err_msg=f"{slot.name} after step {step}",
            )


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_activations(combiner, tmp_path):
    table = np.array(GOLDEN["table"], np.float32)
    spec = ee.EmbeddingConfigSpec(
        feature_to_config_dict={"x": ee.FeatureConfig("t", weight_key="w")},
        table_to_config_dict={
            "t": ee.TableConfig(7, 2, initializer=harness.initializer(table), combiner=combiner)
        },
        optimization_parameters=ee.StochasticGradientDescentParameters(0.0),
    )
    batches = [
        (
            {
                "x": harness.sparse(step["ids"]),
                "w": harness.sparse(step["weights"], np.float32),
            },
            {"x": np.zeros([4, 2], np.float32)},
        )
        for step in GOLDEN["steps"]
    ]
    estimator = harness.estimator(harness.gradient_model_fn(["x"]), spec, tmp_path)
    estimator.train(harness.input_fn_of(batches), steps=1)
    got = [one["x"] for one in estimator.predict(harness.input_fn_of(batches))]
    expected = GOLDEN["pipeline"][combiner]["activations_initial_table"]
    np.testing.assert_allclose(np.reshape(got, [3, 4, 2]), expected, rtol=1e-6)
