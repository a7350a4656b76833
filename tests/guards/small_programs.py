"""Small models of a batch of four samples, for tests of what a training says about its model."""

import functools
from unittest import mock

import harness
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.training import evaluation, training

import estimator_emb as ee
from estimator_emb.engine.cores import Cores
from estimator_emb.guards.call import Call, Runs
from estimator_emb.guards.events import ModelBatch
from estimator_emb.guards.watching import watched

v1 = tf.compat.v1
X = np.array([[1.0, 2, 3], [4, 6, 5], [2, 0, 1], [1, 1, 9]], np.float32)
SLOW = [harness.slow(kind) for kind in ("local", "emulated")]
each_kind = pytest.mark.parametrize("kind", ["plain", *SLOW])
off_a_tpu = pytest.mark.parametrize("kind", ["plain", SLOW[0]])


def input_fn(params=None):
    return tf.data.Dataset.from_tensors(({"x": X}, X[:, :1])).repeat()


def mse(y, labels):
    return tf.reduce_mean(tf.square(y - labels))


def linear(x, labels):
    """Returns the loss of a linear model that begins with zeros."""
    return mse(x @ v1.get_variable("w", [3, 1], initializer=v1.zeros_initializer()), labels)


def minimized(loss, variables=None, step=True):
    step = v1.train.get_global_step() if step else None
    return v1.train.GradientDescentOptimizer(0.001).minimize(loss, step, variables)


def built(build, features, labels, mode, spec):
    """Returns the spec of `build(x, labels)`, which returns a loss, or it and a train_op."""
    made = build(features["x"], labels)
    loss, train_op = made if isinstance(made, tuple) else (made, None)
    if mode == ee.ModeKeys.TRAIN and train_op is None:
        train_op = minimized(loss)
    return spec(mode, loss=loss, train_op=train_op if mode == ee.ModeKeys.TRAIN else None)


def make(kind, model_dir, build, **kwargs):
    model = functools.partial(built, build)
    return harness.of_kind(kind, model, model_dir, **{"run": {}, **kwargs})


def check(build, warm_start=None, **fields):
    """Builds a model as in a plain Estimator's training, with the checks of models only."""
    with tf.Graph().as_default():
        v1.train.create_global_step()
        train, folder = ee.ModeKeys.TRAIN, f"{build.__name__} {warm_start} {fields}"
        # In each folder, a warning is logged once.
        graph = watched(Call(Runs.PLAIN, train, train, model_dir=folder, warm_start=warm_start))
        batch = v1.data.make_one_shot_iterator(input_fn()).get_next()
        with graph.model_runs(ModelBatch(*batch), Cores()):
            spec = built(build, *batch, train, ee.EstimatorSpec)
        graph.model_returned(spec._replace(**fields))


def without_tables(model_dir, run=harness.SILENT):
    """Returns a TPUEstimator for the input of id_program, for what does not depend on tables."""

    def model_fn(features, labels, mode, params):
        weight = v1.get_variable("weight", [])
        return harness.minimized(mode, weight * tf.reduce_sum(tf.cast(features["id"], tf.float32)))

    return harness.estimator(model_fn, None, model_dir, run=run)


class _Built(Exception):
    pass


def build_graph(call, estimator, input_fn=input_fn, **kwargs):
    """Trains or evaluates until the session would open: after the checks of the graph."""
    with (
        mock.patch.object(training, "MonitoredTrainingSession", side_effect=_Built),
        mock.patch.object(evaluation, "_evaluate_once", side_effect=_Built),
        pytest.raises(_Built),
    ):
        harness.run(call, estimator, input_fn, **kwargs)


def told(caplog):
    """Returns our log lines, except the one that such an evaluation is of untrained weights."""
    return [one for one in harness.said(caplog) if "Could not find trained model" not in one]
