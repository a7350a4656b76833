"""A program with one table, 'words'. Tests restore its checkpoints on each kind of device."""

import traceback

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee

ROWS, DIMENSION = 50, 4
CALLS = ("train", "evaluate", "predict", "export")
CORES = {"host": None, "emulated": 1, "8 cores": 8, "3 servers": None}
"""Where an estimator runs -> number of cores of its emulated TPU."""


def spec(rows=ROWS, dimension=DIMENSION, parameters=None, name="words"):
    return ee.EmbeddingConfigSpec(
        feature_to_config_dict={"x": ee.FeatureConfig(name)},
        table_to_config_dict={name: ee.TableConfig(rows, dimension)},
        optimization_parameters=parameters or ee.AdagradParameters(0.1),
    )


def make(model_dir, way="host", units=1, layer="output", scaffold_fn=None, start=None, **table):
    def model_fn(features, labels, mode, params):
        hidden = tf.reduce_sum(features["x"], axis=1, keepdims=True)
        ones = tf.compat.v1.ones_initializer()
        kernel = tf.compat.v1.get_variable(f"{layer}/kernel", [1, units], initializer=ones)
        output = hidden @ kernel
        if mode == ee.ModeKeys.PREDICT:
            return harness.served(mode, output=output)._replace(scaffold_fn=scaffold_fn)
        return harness.minimized(mode, tf.reduce_mean(output), 0.1, scaffold_fn=scaffold_fn)

    options = {"batch_size": 8, "num_shards": CORES[way], "warm_start_from": start}
    return harness.estimator(model_fn, spec(**table), model_dir, **options)


def input_fn(params):
    return harness.dataset([({"x": np.arange(8) % 3}, np.zeros(8, np.float32))])


def call(what, estimator, **kwargs):
    if what == "export":
        receive = harness.receiver_of(x=(tf.int64, [None]))
        return estimator.export_saved_model(f"{estimator.model_dir}/export", receive, **kwargs)
    steps = {} if what == "predict" else {"steps": 1}
    return harness.run(what, estimator, input_fn, **steps, **kwargs)


def refused(what, estimator, kind=ValueError, **kwargs):
    """Returns the error message of a call that must fail without changing the checkpoints."""

    def files():
        found = tf.io.gfile.glob(f"{estimator.model_dir}/*.ckpt-*")
        return {name: tf.io.gfile.stat(name).mtime_nsec for name in found}

    before = files()
    with pytest.raises(kind) as error:
        call(what, estimator, **kwargs)
    assert files() == before
    shown = "".join(traceback.format_exception(error.value))
    assert "Original stack trace" not in shown and shown.endswith(f"{error.value}\n")
    return str(error.value)
