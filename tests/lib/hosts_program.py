"""Trains a model on several hosts with PJRT devices, or on an emulated TPU for comparison.

hosts_program.py MODEL_DIR CASE [STEPS]
"""

import os
import signal
import sys
import time
import warnings

import emulated_program
import harness
import numpy as np
import tensorflow as tf

import estimator_emb as ee
from estimator_emb import embedding

v1 = tf.compat.v1
BATCH, LOOP = 24, 2
BAD_STEP = 3
"""Number of the step in which a host fails, from 0."""


def of_host(params, batches):
    """Returns this host's part of each batch of all hosts."""
    context = params["context"]
    count, each = context.num_hosts, BATCH // context.num_hosts

    def part(features, labels):
        own = slice(context.current_host * each, (context.current_host + 1) * each)
        past = tf.sparse.slice(features["past"], [own.start, 0], [each, 3])
        words, ages = features["words"][own], features["ages"][own]
        return {"words": words, "past": past, "ages": ages}, labels[own]

    return batches if count == 1 else batches.map(part)


def input_of(case):
    """Returns the input_fn of a case. Only the second host gets wrong input."""

    def input_fn(params):
        data = of_host(params, emulated_program.batches({"batch_size": BATCH}))
        if case in ("small table", "random rows"):
            data = data.map(lambda features, labels: ({"words": features["words"]}, labels))
        if params["context"].current_host == 0:
            return data
        if case == "ends":
            return data.take(2 * LOOP)
        if case == "bad id":
            return replaced(data, "words", np.int64(77))
        if case == "nan":
            return replaced(data, "ages", np.float32("nan"))
        return data

    return input_fn


def replaced(data, key, value):
    """Returns a dataset in which batch `BAD_STEP` has `value` everywhere in the feature `key`."""

    def replace(number, batch):
        features, labels = batch
        bad = tf.where(tf.equal(number, BAD_STEP), value, features[key])
        return {**features, key: bad}, labels

    return data.enumerate().map(replace)


def is_second():
    """Returns whether this process is the second host."""
    return os.environ.get("ESTIMATOR_EMB_HOST") == "1"


class Acts(v1.train.SessionRunHook):
    """Ends or delays this process after a loop of steps."""

    def __init__(self, case):
        self.case = case

    def after_run(self, run_context, run_values):
        if self.case == "slow":
            time.sleep(1.5)
        if is_second():
            if self.case == "term":
                self.case = ""  # A second signal ends a slow process at once.
                os.kill(os.getpid(), signal.SIGTERM)
            elif self.case == "hook":
                raise KeyError("of a hook")


def estimator(model_dir, case, device="pjrt", cores=None):
    """Returns the estimator of a case. `cores` is the number of cores of an emulated TPU."""
    if case == "other folder" and is_second():
        model_dir = f"{model_dir}-of-host-1"
    run = {"save_checkpoints_steps": LOOP, "keep_checkpoint_max": None, "tf_random_seed": 1}
    tpu = ee.TPUConfig(LOOP, device=device, num_shards=cores)
    config = ee.RunConfig(tpu, model_dir=str(model_dir), **run)
    model_fn, spec = emulated_program.model_fn, emulated_program.SPEC
    if case == "other step" and is_second():
        model_fn = twice_the_ages
    if case == "saver":
        model_fn = with_a_saver
    if case in ("small table", "random rows"):
        table = ee.TableConfig(1 if case == "small table" else 31, 3)
        spec = harness.tables_spec({"words": table}, ee.AdagradParameters(0.1))
        model_fn = of_words
    if case == "other optimizer" and is_second():
        adam = ee.AdamParameters(0.01, beta1=0.8, sum_inside_sqrt=False)
        spec = spec._replace(optimization_parameters=adam)
    if case == "slots":
        adagrad = embedding.Adagrad(0.1, slot_variable_creation_fn=lambda *_: {})
        spec = spec._replace(optimization_parameters=adagrad)
    old = f"{model_dir}-old" if case == "warm" else None
    return harness.configured(model_fn, spec, config, BATCH, use_tpu=True, warm_start_from=old)


def with_a_saver(features, labels, mode, params):
    spec = emulated_program.model_fn(features, labels, mode, params)
    return spec._replace(scaffold_fn=lambda: v1.train.Scaffold(saver=v1.train.Saver()))


def twice_the_ages(features, labels, mode, params):
    features = {**features, "ages": 2 * features["ages"]}
    return emulated_program.model_fn(features, labels, mode, params)


def of_words(features, labels, mode, params):
    loss = tf.reduce_sum(features["words"])
    return harness.minimized(mode, loss, optimizer=v1.train.AdagradOptimizer(0.1))


def receiver():
    words, ages = v1.placeholder(tf.int64, [None, 3]), v1.placeholder(tf.float32, [None, 2])
    features = {"words": words, "past": v1.sparse_placeholder(tf.int64, [None, 3]), "ages": ages}
    return tf.estimator.export.ServingInputReceiver(features, features)


def main(model_dir, case, steps):
    if case == "other devices" and is_second():
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=1"
    made = estimator(model_dir, case)
    if case in ("leaves", "leaves early") and is_second():
        return
    if case == "leaves early":
        estimator(model_dir, case)
    if case == "calls":
        best = tf.estimator.BestExporter(serving_input_receiver_fn=receiver)
        training = tf.estimator.TrainSpec(input_of(case), max_steps=2 * LOOP)
        options = {"steps": 2, "throttle_secs": 0, "exporters": [best]}
        evaluation = tf.estimator.EvalSpec(emulated_program.batches, **options)
        result, _ = tf.estimator.train_and_evaluate(made, training, evaluation)
        print("train_and_evaluate", result and sorted(result))
    made.train(input_of(case), max_steps=steps, hooks=[Acts(case)])
    if case in ("calls", "slow"):
        error = made.evaluate(emulated_program.batches, steps=2)["error"]
        print("evaluate", f"{error:.5f}")
    if case == "calls":
        print("predict", len(list(made.predict(emulated_program.without_labels))))
        print("export", os.path.dirname(made.export_saved_model(model_dir + "/saved", receiver)))
    print("end")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], sys.argv[2], int((sys.argv[3:] or ["6"])[0]))
