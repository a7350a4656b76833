"""Trains `drawn` trainings on an emulated TPU, and with tables on jax devices."""

import dataclasses

import drawn
import harness
import numpy as np

STEPS = 20


def training(seed, cores):
    """Draws a training, and truncates its batches to a multiple of `cores`.

    Gradients are not binary fractions here: within 20 steps, those would hit discontinuities of a
    rule.
    """
    rng = np.random.default_rng(seed)
    made = drawn.training(seed, native=False, cores=cores, wrong=0.0)
    samples = drawn.SAMPLES // cores * cores
    tables = {}
    for name, table in made.tables.items():
        features = {
            key: dataclasses.replace(
                feature,
                ids=[of_step[:samples] for of_step in feature.ids],
                weights=[of_step[:samples] for of_step in feature.weights],
                gradients=[
                    (of_step * rng.uniform(0.9, 1.1, of_step.shape)).astype(np.float32)[:samples]
                    for of_step in feature.gradients
                ],
            )
            for key, feature in table.features.items()
        }
        tables[name] = dataclasses.replace(table, features=features)
    return samples, dataclasses.replace(made, pipelined=False, tables=tables)


def variables(device, samples, training, folder):
    """Returns the variables of a training's last checkpoint. Its batches are repeated."""
    spec, batches = training.spec(), training.batches()
    estimator = harness.estimator(
        harness.gradient_model_fn(list(spec.feature_to_config_dict)),
        spec,
        folder / device,
        samples,
        device,
        training.cores,
        {**harness.SILENT, "save_checkpoints_steps": STEPS},
        {"iterations_per_loop": 4},
    )
    estimator.train(lambda params: harness.dataset(batches).repeat(), max_steps=STEPS)
    return harness.saved(folder / device, STEPS)


def check(seed, cores, folder):
    """Raises AssertionError if a variable differs after all steps."""
    samples, drawn_training = training(seed, cores)
    want, got = (
        variables(device, samples, drawn_training, folder) for device in ("host", "pjrt+tables")
    )
    assert got.keys() == want.keys()
    for name, values in want.items():
        assert np.isfinite(values).all(), name
        largest = np.abs(values).max(initial=1.0)
        np.testing.assert_allclose(got[name], values, 1e-5, 1e-5 * largest, err_msg=name)
