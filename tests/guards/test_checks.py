"""Each backend runs the checks of each event. tests/mistakes has a row for each check."""

import contextlib

import harness
import numpy as np
import pytest
import tensorflow as tf
import tpu_described
from tensorflow.python.training import training

import estimator_emb as ee
from estimator_emb.guards import watching
from estimator_emb.guards.call import Runs
from estimator_emb.guards.events import Check, Event

SPEC = harness.table_spec(7, 2, ee.AdagradParameters(0.1))


def input_fn(params=None):
    size = params["batch_size"] if params else 8
    labels = {"x": np.ones([size, 2], np.float32)}
    return harness.dataset([({"x": harness.sparse([[1]] * size)}, labels)]).repeat()


def on_host(path, model_fn, **kwargs):
    return harness.estimator(model_fn, SPEC, path, 8, **kwargs)


MADE = {
    Runs.LOCAL: on_host,
    Runs.EMULATED: lambda path, fn: on_host(path, fn, device="host", num_shards=2),
    Runs.PJRT: lambda path, fn: on_host(path, fn, device="pjrt"),
    Runs.TPU: lambda path, fn: tpu_described.estimator(fn, SPEC, path, batch=8),
}


@pytest.mark.parametrize("runs", MADE, ids=lambda runs: runs.name)
def test_every_backend_runs_the_checks_of_events_of_a_training(runs, monkeypatch, tmp_path):
    """Adds a check of each event, and trains until the session would open."""
    assert set(MADE) == set(Runs) - {Runs.PLAIN, Runs.DESCRIBED}  # All that train a TPUEstimator.
    if runs is Runs.PJRT:
        pytest.importorskip("jax")
    called = []

    def noting(event):
        def check(*given):
            call = getattr(given[0], "call", given[0])  # Later events give the graph's `Facts`.
            assert call.runs is runs
            called.append(event)
            if event in (Event.CALL, Event.MODEL_RUNS):  # Their checks return a context.
                return contextlib.nullcontext()
            hooks = event is Event.GRAPH_COMPLETED  # Its checks return hooks for the session.
            return [tf.compat.v1.train.SessionRunHook()] if hooks else None

        return Check(event, lambda call: True, check)

    monkeypatch.setattr(watching, "CHECKS", [*watching.CHECKS, *map(noting, Event)])
    found = {}
    estimator = MADE[runs](tmp_path, harness.gradient_model_fn(["x"]))
    # An error ends the training where its session would open. `found` gets the session's arguments.
    with tpu_described._stopped_at(training, "MonitoredTrainingSession", estimator, found):
        estimator.train(input_fn, max_steps=20)
    begins = {
        Runs.LOCAL: [Event.CALL, Event.INPUT_RETURNED, Event.GRAPH_BEGINS],
        Runs.TPU: [Event.CALL, Event.GRAPH_BEGINS],  # tensorflow-estimator checks input_fn itself.
    }
    # Emulated and PJRT cores call input_fn later, within the graph of the model.
    of_cores = [Event.CALL, Event.GRAPH_BEGINS, Event.INPUT_RETURNED]
    of_model = [Event.MODEL_RUNS, Event.MODEL_RETURNED, Event.GRAPH_COMPLETED]
    ended = [Event.GRAPH_FAILED]  # By the error instead of a session.
    assert called == [*begins.get(runs, of_cores), *of_model, *ended]
    added = [type(hook) for hook in found["hooks"]]
    assert added.count(tf.compat.v1.train.SessionRunHook) == 1  # The check's.
