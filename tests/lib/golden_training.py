"""Runs the golden vectors as training programs, on any device that trains tables."""

import functools
import json
import pathlib

import descriptors
import harness
import numpy as np
import tensorflow as tf

import estimator_emb as ee

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden.json").read_text())
SAMPLES = 4
"""Number of samples in a golden batch."""


def parameters_of(case):
    """Returns the case's optimizer, and its learning rates per step (None if constant)."""
    hyper = dict(case["hyper"])
    hyper.pop("combiner")
    hyper.pop("num_shards", None)
    rate = hyper.pop("learning_rate")
    rates = rate if isinstance(rate, list) else None
    if case["optimizer"] == "CenteredRmsProp":
        assert hyper.pop("initial_ms") == 0
    if case["optimizer"] != "FrequencyEstimator":
        hyper = {**descriptors.arguments(hyper), "learning_rate": 0.5 if rates else rate}
    renamed = {"l1": "l1_regularization_strength", "l2": "l2_regularization_strength"}
    if case["optimizer"] in ("Ftrl", "ProximalYogi"):
        renamed["initial_accumulator"] = "initial_accumulator_value"
    arguments = {renamed.get(name, name): value for name, value in hyper.items()}
    return descriptors.GOLDEN_CLASSES[case["optimizer"]](**arguments), rates


def spec_of(*cases):
    """Returns a spec with a table "t0", "t1", ... for each case, trained with the case's optimizer.

    The weighted features are "x0", "x1", ..., with their weights in "w0", "w1", ...
    """
    tables = {}
    for index, case in enumerate(cases):
        parameters, rates = parameters_of(case)
        values, rate_fn = np.array(case["table"], np.float32), _reading(rates) if rates else None
        options = {"optimization_parameters": parameters, "learning_rate_fn": rate_fn}
        tables[f"t{index}"] = table_of(values, case["hyper"]["combiner"], **options)
    return spec_of_tables(tables)


def _reading(rates):
    return lambda step: tf.gather(tf.constant(rates), step)


def table_of(values, combiner, **kwargs):
    """Returns a TableConfig with the initial values `values`."""
    initial = harness.initializer(values)
    return ee.TableConfig(*values.shape, initializer=initial, combiner=combiner, **kwargs)


def spec_of_tables(tables):
    """Returns a spec of the tables "t0", "t1", ..., with the features "x0", "x1", ..."""
    features = {}
    for index in range(len(tables)):
        features[f"x{index}"] = ee.FeatureConfig(f"t{index}", weight_key=f"w{index}")
    dicts = {"feature_to_config_dict": features, "table_to_config_dict": tables}
    sgd = ee.StochasticGradientDescentParameters(0.0)
    return ee.EmbeddingConfigSpec(optimization_parameters=sgd, **dicts)


def batches(*dimensions, samples=SAMPLES, gradients=True):
    """Returns (features, gradients of activations) of each golden step, for tables of `dimensions`.

    Samples beyond `SAMPLES` have no ids. `gradients=False` sets all gradients to 0.
    """
    more = samples - SAMPLES
    made = []
    for step in GOLDEN["steps"]:
        features, labels = {}, {}
        for index, dimension in enumerate(dimensions):
            gradient = np.zeros([samples, dimension], np.float32)
            if gradients:
                gradient[:SAMPLES] = np.array(step["act_grad"])[:, :dimension]
            features[f"x{index}"] = harness.sparse(step["ids"] + [[]] * more)
            features[f"w{index}"] = harness.sparse(step["weights"] + [[]] * more, np.float32)
            labels[f"x{index}"] = gradient
        made.append((features, labels))
    return made


def assert_trains_like_golden(model_dir, device, num_shards):
    """Trains one table per case with `num_shards`, all in one training, and compares each table."""
    cases = [case for case in GOLDEN["cases"] if case["hyper"].get("num_shards", 1) == num_shards]
    spec = spec_of(*cases)
    dimensions = [table.dimension for table in spec.table_to_config_dict.values()]
    model_fn, cores = harness.gradient_model_fn([*spec.feature_to_config_dict]), num_shards
    estimator = harness.estimator(model_fn, spec, model_dir, device=device, num_shards=cores)
    estimator.train(harness.input_fn_of(batches(*dimensions)), steps=3)
    for number, case in enumerate(cases):
        assert_steps_equal_golden(case, model_dir, table=f"t{number}")


# All cases of a training read the same checkpoints.
_saved = functools.lru_cache(3)(harness.saved)


def assert_steps_equal_golden(case, model_dir, tolerance=1e-5, table="t0"):
    """Compares a table's values and slots after steps 1 to 3 with the case."""
    parameters, _ = parameters_of(case)
    for step in (1, 2, 3):
        got = _saved(model_dir, step)
        expected = case["f32"][f"step{step}"]
        of_table = {name for name in got if name.partition("/")[0] == table}
        assert of_table == {table, *(table + slot.suffix for slot in parameters.slots)}
        saved = {"parameters": "", **{slot.name: slot.suffix for slot in parameters.slots}}
        assert saved.keys() == expected.keys()
        for name, suffix in saved.items():
            owner, value = f"{name} of {case['name']} after step {step}", got[table + suffix]
            np.testing.assert_allclose(value, expected[name], tolerance, tolerance, err_msg=owner)
