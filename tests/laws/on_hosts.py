"""Trains drawn trainings on several hosts with PJRT devices, and on an emulated TPU.

All hosts run this program. It trains several programs in the same processes, one after another:

    on_hosts.py FOLDER CORES SEED-PIPELINE...

PER_HOST_V1 and PER_HOST_V2 feed programs with tables, PER_SHARD_V1 and BROADCAST others.
"""

import dataclasses
import os
import pathlib
import sys
import warnings

import harness
import numpy as np
import on_devices
import tensorflow as tf
import trainings
from emulated_program import every_checkpoint

import estimator_emb as ee

v1 = tf.compat.v1
STEPS = 8
OF_TABLES, OF_OTHERS = ("PER_HOST_V1", "PER_HOST_V2"), ("PER_SHARD_V1", "BROADCAST")
WIDTH = 4
"""Most ids of a sample."""
OPTIMIZERS = sorted(trainings.CLASSES)


@dataclasses.dataclass(frozen=True)
class Program:
    """A training with a batch of `samples` for the cores of all hosts."""

    training: trainings.Training
    samples: int
    pipeline: str
    loop: int

    @property
    def spec(self):
        return self.training.spec() if self.pipeline in OF_TABLES else None

    def batches(self, part):
        """Returns (features, labels) of each step. Without tables, both are the labels."""
        batches = self.training.of_samples(part).batches()
        return batches if self.spec else [(labels, labels) for _, labels in batches]

    def input_fn(self, params):
        """Returns the samples of the host or core that calls."""
        context, parts = params["context"], self.samples // params["batch_size"]
        each = parts // context.num_hosts
        own = range(context.current_host * each, (context.current_host + 1) * each)
        for_each_core = context._internal_ctx.is_input_sharded_per_core()
        if for_each_core:
            own = [context.current_input_fn_deployment()[1]]
        elif self.pipeline == "BROADCAST":
            own = [0]
        size = params["batch_size"]
        batches = [self.batches(slice(size * part, size * (part + 1))) for part in own]
        if self.pipeline == "BROADCAST" and os.environ.get("ESTIMATOR_EMB_HOST", "0") != "0":
            batches[0].reverse()  # The other hosts must take the chief's batch instead.
        data = harness.dataset([one for of_step in zip(*batches, strict=True) for one in of_step])
        if for_each_core:
            return v1.data.make_one_shot_iterator(data.repeat()).get_next()
        return data.repeat() if context._internal_ctx.mode != ee.ModeKeys.PREDICT else data

    def without_labels(self, params):
        return self.input_fn(params).map(lambda features, labels: features)

    def model_fn(self, seen):
        """Returns a model_fn with a dense layer. host_call adds its input to `seen`."""
        keys = [feature.key for feature in self.training.features]

        def host_call(step, loss):
            def see(step, loss):
                seen.append([step[0], *loss])

            return tf.numpy_function(see, [step, loss], [])

        def model_fn(features, labels, mode, params):
            activations = {key: tf.identity(features[key]) for key in keys}
            flat = [tf.reshape(one, [one.shape[0], -1]) for one in activations.values()]
            glorot = v1.initializers.glorot_uniform(seed=1)
            # Bounded, so that rounding does not grow.
            flat = tf.tanh(tf.concat(flat, axis=1) / 8)
            hidden = v1.layers.dense(flat, 3, kernel_initializer=glorot)
            if mode == ee.ModeKeys.PREDICT:
                return ee.TPUEstimatorSpec(mode, predictions={**activations, "hidden": hidden})
            loss = 0.1 * tf.reduce_sum(tf.square(hidden))
            loss += tf.add_n([tf.reduce_sum(activations[key] * labels[key]) for key in keys])
            tensors = [v1.train.get_global_step()[None], loss[None]]
            optimizer, reduction = v1.train.AdagradOptimizer(0.1), v1.losses.Reduction.SUM
            fields = {"host_call": (host_call, tensors) if mode == ee.ModeKeys.TRAIN else None}
            fields["eval_metrics"] = lambda hidden: {"mean": v1.metrics.mean(hidden)}, [hidden]
            return harness.minimized(mode, loss, optimizer=optimizer, reduction=reduction, **fields)

        return model_fn


def names(number, count):
    """Returns the names of `count` programs with tables, and of one without tables."""
    seeds = range(number * count, (number + 1) * count)
    rounds = [(seed, seed + seed // len(OPTIMIZERS)) for seed in seeds]
    of_tables = [f"{seed}-{OF_TABLES[turn % 2]}" for seed, turn in rounds]
    return [*of_tables, f"{number}-{OF_OTHERS[number % 2]}"]


def program(name, cores):
    """Draws a program. Twelve consecutive seeds use all optimizers."""
    seed, _, pipeline = name.partition("-")
    seed = int(seed)
    optimizer = OPTIMIZERS[seed % len(OPTIMIZERS)]
    first, made = (
        trainings.training(seed, native=False, classes=classes, cores=cores, wrong=0.0)
        for classes in ((optimizer,), tuple(OPTIMIZERS))
    )
    made = dataclasses.replace(made, tables={**made.tables, "t0": first.tables["t0"]})
    # Each batch has the samples of two steps.
    made = made.with_features(ids=doubled, weights=doubled, gradients=doubled)
    samples = 2 * trainings.SAMPLES // cores * cores
    made = on_devices.inexact(seed, made, samples)
    if pipeline != "PER_HOST_V1":  # Batches of the cores must have the same width.
        made = made.with_features(width=WIDTH)
    return Program(made, samples, pipeline, (2, 4)[seed % 5 % 2])


def doubled(of_steps):
    after = of_steps[1:] + of_steps[:1]
    if isinstance(of_steps[0], list):
        return [one + other for one, other in zip(of_steps, after, strict=True)]
    return [np.concatenate(both) for both in zip(of_steps, after, strict=True)]


def train(name, folder, device, cores):
    """Trains, evaluates, trains on and predicts. The chief writes what it sees to the folder."""
    made, seen = program(name, cores), []
    cores = cores if device == "host" else None
    run = {**harness.SILENT, "save_checkpoints_steps": made.loop, "keep_checkpoint_max": None}
    pipeline = getattr(ee.InputPipelineConfig, made.pipeline)
    tpu = {"iterations_per_loop": made.loop, "per_host_input_for_training": pipeline}
    of_program = made.model_fn(seen), made.spec, folder, made.samples
    estimator = harness.estimator(*of_program, device, cores, run, tpu)
    estimator.train(made.input_fn, max_steps=STEPS // 2)
    mean = estimator.evaluate(made.input_fn, steps=2)["mean"]
    estimator.train(made.input_fn, max_steps=STEPS)
    predicted = list(estimator.predict(made.without_labels))
    if predicted:
        found = {key: np.stack([one[key] for one in predicted]) for key in predicted[0]}
        np.savez(folder / "seen.npz", mean=mean, host_call=np.array(seen), **found)
    assert predicted or not seen


def results(folder):
    """Returns every variable of every checkpoint, and what the chief has seen."""
    with np.load(folder / "seen.npz") as seen:
        return {**every_checkpoint(folder), **seen}


def assert_hosts_equal_an_emulated_tpu(name, folder, cores):
    """Trains on an emulated TPU, and compares with what the hosts wrote in `folder`."""
    got = results(folder / f"hosts-{name}")
    train(name, folder / f"emulated-{name}", "host", cores)
    want = results(folder / f"emulated-{name}")
    on_devices.assert_same(want, got, f"of {name}")


def main(folder, cores, *programs):
    for name in programs:
        train(name, pathlib.Path(folder) / f"hosts-{name}", "pjrt+tables", int(cores))
        print("trained", name)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
