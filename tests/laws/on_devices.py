"""Trains drawn trainings on an emulated TPU, with tables on jax devices, and on servers."""

import dataclasses

import harness
import numpy as np
import servers
import trainings

import estimator_emb as ee

STEPS = 20


def inexact(seed, made, samples):
    """Returns the training with batches of `samples`, for trainings of many steps.

    Its gradients are no binary fractions: within 20 steps, those would hit discontinuities of a
    rule.
    """
    rng = np.random.default_rng(seed)

    def gradients(of_steps):
        return [(one * rng.uniform(0.9, 1.1, one.shape)).astype(np.float32) for one in of_steps]

    made = dataclasses.replace(made.with_features(gradients=gradients), pipelined=False)
    return made.of_samples(slice(samples))


def variables(device, training, folder):
    """Returns the variables of a training's last checkpoint. Its batches are repeated."""
    spec, batches, cores = training.spec(), training.batches(), training.cores
    model_fn = harness.gradient_model_fn([feature.key for feature in training.features])
    run, tpu = {**harness.SILENT, "save_checkpoints_steps": STEPS}, {"iterations_per_loop": 4}
    size = len(training.features[0].ids[0])
    estimator = harness.estimator(model_fn, spec, folder / device, size, device, cores, run, tpu)
    estimator.train(lambda params: harness.dataset(batches).repeat(), max_steps=STEPS)
    return harness.saved(folder / device, STEPS)


def assert_jax_devices_equal_an_emulated_tpu(seed, cores, folder):
    """Trains on both, and raises AssertionError if a variable differs after all steps."""
    made = trainings.training(seed, native=False, cores=cores, wrong=0.0)
    drawn = inexact(seed, made, trainings.SAMPLES // cores * cores)  # A multiple of `cores`.
    assert_same(*(variables(device, drawn, folder) for device in ("host", "pjrt+tables")))


def assert_servers_equal_one_process(seed, native, folder):
    """Trains on two parameter servers and in one process, and compares all variables."""
    made = trainings.training(seed, native, cores=1, wrong=0.0)
    made = inexact(seed, made, trainings.SAMPLES)
    spec = made.spec()._replace(partition_strategy=("div", "mod")[seed % 2])
    model_fn = harness.gradient_model_fn([feature.key for feature in made.features])
    input_fn = harness.input_fn_of(made.batches())
    cluster = servers.Cluster(workers=0, servers=2)

    def estimator(config):
        return harness.configured(model_fn, spec, config, trainings.SAMPLES, use_tpu=False)

    model_dir = str(folder / "servers")
    cluster.train(lambda *task: (estimator(cluster.config(*task, model_dir=model_dir)), input_fn))
    estimator(ee.RunConfig(model_dir=str(folder / "process"))).train(input_fn)
    assert_same(*(harness.saved(folder / name, trainings.STEPS) for name in ("process", "servers")))


def assert_same(want, got, owner=""):
    """Raises AssertionError if arrays of the same names differ by more than rounding."""
    assert got.keys() == want.keys(), owner
    for name, values in want.items():
        assert np.isfinite(values).all(), (owner, name)
        largest = np.abs(values).max(initial=1.0)
        message = f"{name} {owner}"
        np.testing.assert_allclose(got[name], values, 1e-5, 1e-5 * largest, err_msg=message)
