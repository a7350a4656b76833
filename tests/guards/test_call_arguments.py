"""Impossible arguments of calls are refused. tests/mistakes has a TPUEstimator's own calls."""

import logging
from unittest import mock

import harness
import numpy as np
import pytest
import tensorflow as tf
from id_program import input_of, make

import estimator_emb as ee
from estimator_emb.guards.checks import call_arguments

v1 = tf.compat.v1
HOOK = v1.train.StopAtStepHook(2)
RECEIVER = ee.export.ServingInputReceiver({}, {})


OF_RECEIVER = (
    "serving_input_receiver_fn must be a function that returns a ServingInputReceiver; got a "
    "ServingInputReceiver. Give the function itself."
)


@pytest.mark.parametrize("steps", [None, 1, np.int32(3), 4.0, 12.5, float("inf")])
@pytest.mark.parametrize("hooks", [None, (), [HOOK], {HOOK}])
def test_valid_arguments_are_accepted(steps, hooks):
    listeners = [v1.train.CheckpointSaverListener()]
    call_arguments.check_call("train", hooks=hooks, saving_listeners=listeners, steps=steps)


@pytest.mark.parametrize(
    "train, evaluate, message",
    [
        *(
            ({}, {"exporters": kind("best", serving_input_receiver_fn=RECEIVER)}, message)
            for kind in (ee.LatestExporter, ee.FinalExporter, ee.BestExporter)
            for message in [f"{kind.__name__} 'best': {OF_RECEIVER}"]
        ),
    ],
)
def test_specs_are_checked_before_they_train(train, evaluate, message, tmp_path):
    train = ee.TrainSpec(input_of(8), **{"max_steps": 2, **train})
    evaluate = ee.EvalSpec(input_of(8), **evaluate)
    estimator = make(tmp_path, use_tpu=False)
    assert harness.refusal(TypeError, ee.train_and_evaluate, estimator, train, evaluate) == message
    assert not list(tmp_path.iterdir())


def test_arguments_of_a_plain_estimator_are_checked(installed, tmp_path):
    def model_fn(features, labels, mode):
        w = v1.get_variable("w", [])
        loss = tf.reduce_sum(w * features - labels)
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return ee.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn():
        return tf.constant([1.0])

    estimator = ee.Estimator(model_fn, str(tmp_path))
    assert harness.refusal(TypeError, estimator.train, input_fn, hooks=HOOK) == (
        "train: hooks must be a list of SessionRunHook of tf.compat.v1.train; got a "
        "StopAtStepHook. Put it into a list: hooks=[...]."
    )
    message = harness.refusal(ValueError, estimator.train, input_fn, steps=1)
    assert message.endswith(
        "In model_fn, labels is None in mode 'train', for input_fn returned only features: "
        "return a Dataset of (features, labels), or both."
    )
    estimator.train(lambda: (tf.constant([1.0]), tf.constant([2.0])), steps=1)
    export = estimator.export_saved_model
    assert harness.refusal(TypeError, export, str(tmp_path / "to"), RECEIVER) == OF_RECEIVER


def test_what_tensorflow_estimator_takes_trains(installed, tmp_path):
    """Steps that are no integer, hooks of a generator, specs without a mode, and mock specs."""
    steps = []

    class Counts(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            steps.append(1)

    def model_fn(features, labels, mode):
        loss = tf.reduce_sum(v1.get_variable("w", []) * features)
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return ee.EstimatorSpec(None, loss=loss, train_op=train_op)

    def input_fn():
        return tf.data.Dataset.from_tensors([1.0]).repeat()

    estimator = ee.Estimator(model_fn, str(tmp_path))
    estimator.train(input_fn, hooks=(hook for hook in [Counts()]), steps=2.5)
    assert len(steps) == 3
    spec = mock.Mock(spec=ee.TrainSpec, max_steps=mock.Mock())
    call_arguments.check_specs(spec, mock.Mock(spec=ee.EvalSpec))


@pytest.mark.parametrize(
    "rows, dimension, warns", [(64, 100_000, True), (20_000, 20_000, False), (5, 8192, False)]
)
def test_swapped_table_sizes_cause_a_warning(rows, dimension, warns, caplog):
    caplog.set_level(logging.WARNING, "estimator_emb")
    ee.TableConfig(rows, dimension)
    assert harness.said(caplog) == warns * [
        f"TableConfig: vocabulary_size is {rows} and dimension {dimension}. Are they swapped? "
        "vocabulary_size, the number of rows, comes first."
    ]
