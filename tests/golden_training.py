# SPDX-License-Identifier: Apache-2.0
"""The golden vectors as training programs, for whatever trains tables."""

import json
import pathlib

import harness
import numpy as np
import tensorflow as tf

import estimator_emb as ee
from estimator_emb import optimizers

GOLDEN = json.loads((pathlib.Path(__file__).parent / "golden.json").read_text())
SAMPLES = 4
"""Samples of a golden batch."""

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


def spec_of(case):
    """One table "t" with the weighted feature "x", trained as the case says."""
    parameters, rates = parameters_of(case)
    rate_fn = (lambda step: tf.gather(tf.constant(rates), step)) if rates else None
    return spec_of_table(
        np.array(case["table"], np.float32),
        case["hyper"]["combiner"],
        parameters,
        learning_rate_fn=rate_fn,
    )


def spec_of_table(table, combiner, parameters, **kwargs):
    return ee.EmbeddingConfigSpec(
        feature_to_config_dict={"x": ee.FeatureConfig("t", weight_key="w")},
        table_to_config_dict={
            "t": ee.TableConfig(
                *table.shape, initializer=harness.initializer(table), combiner=combiner, **kwargs
            )
        },
        optimization_parameters=parameters,
    )


def batches(dimension, samples=SAMPLES, gradients=True):
    """(features, labels) of each golden step; the labels are the gradients of the activation.

    Args:
      dimension: columns of the table.
      samples: at least `SAMPLES`; those beyond have no ids.
      gradients: False makes them 0.
    """
    more = samples - SAMPLES
    made = []
    for step in GOLDEN["steps"]:
        gradient = np.zeros([samples, dimension], np.float32)
        if gradients:
            gradient[:SAMPLES] = np.array(step["act_grad"])[:, :dimension]
        features = {
            "x": harness.sparse(step["ids"] + [[]] * more),
            "w": harness.sparse(step["weights"] + [[]] * more, np.float32),
        }
        made.append((features, {"x": gradient}))
    return made


def check_steps(case, model_dir, tolerance=1e-5):
    """Compares the checkpoints of steps 1 to 3 with the case, slots included."""
    parameters, _ = parameters_of(case)
    for step in (1, 2, 3):
        got = harness.saved(model_dir, step)
        expected = dict(case["f32"][f"step{step}"])
        assert {name for name in got if not name.startswith("tpu_embedding_dummy_table")} == {
            "global_step", "t", *("t" + slot.suffix for slot in parameters.slots)
        }  # fmt: skip
        np.testing.assert_allclose(
            got["t"], expected.pop("parameters"), atol=tolerance, rtol=tolerance
        )
        assert len(expected) == len(parameters.slots)
        for slot in parameters.slots:
            np.testing.assert_allclose(
                got["t" + slot.suffix],
                expected[slot.name],
                atol=tolerance,
                rtol=tolerance,
                err_msg=f"{slot.name} after step {step}",
            )
