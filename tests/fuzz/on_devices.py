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
    made = drawn.training(seed, native=False, cores=cores, wrong=0.0)
    return truncated(seed, made, cores)


def truncated(seed, made, cores):
    """Returns the number of samples that remain, and the training with inexact gradients."""
    rng = np.random.default_rng(seed)
    samples = of_batch(made) // cores * cores

    def change(feature):
        gradients = [
            (of_step * rng.uniform(0.9, 1.1, of_step.shape)).astype(np.float32)
            for of_step in feature.gradients
        ]
        return dataclasses.replace(feature, gradients=gradients)

    made = dataclasses.replace(with_features(made, change), pipelined=False)
    return samples, of_samples(made, slice(samples))


def of_batch(training):
    """Returns the number of samples of a training's batch."""
    return len(next(iter(features_of(training))).ids[0])


def features_of(training):
    return (feature for table in training.tables.values() for feature in table.features.values())


def of_samples(training, part):
    """Returns the training with a slice of each batch."""

    def change(feature):
        return dataclasses.replace(
            feature,
            **{
                name: [of_step[part] for of_step in getattr(feature, name)]
                for name in ("ids", "weights", "gradients")
            },
        )

    return with_features(training, change)


def with_features(training, change):
    """Returns the training with each feature replaced by `change(feature)`."""
    tables = {
        name: dataclasses.replace(
            table, features={key: change(one) for key, one in table.features.items()}
        )
        for name, table in training.tables.items()
    }
    return dataclasses.replace(training, tables=tables)


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
