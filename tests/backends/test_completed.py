"""Every backend completes its graphs in `backends.completed`."""

import harness
import numpy as np
import pytest
import tensorflow as tf
import tpu_described
from tensorflow.python.training import training

import estimator_emb as ee
from estimator_emb.backends import completed
from estimator_emb.backends.choose import BACKENDS
from estimator_emb.backends.emulated.backend import EmulatedBackend
from estimator_emb.backends.host import HostBackend
from estimator_emb.backends.pjrt.backend import PjrtBackend
from estimator_emb.backends.tpu.backend import TPUBackend

BATCH = 8


SPEC = harness.table_spec(7, 2, ee.AdagradParameters(0.1))


def input_fn(params):
    size = params["batch_size"]
    labels = {"x": np.ones([size, 2], np.float32)}
    return harness.dataset([({"x": harness.sparse([[1]] * size)}, labels)]).repeat()


MODEL_FN = harness.gradient_model_fn(["x"])


def on_host(path, **kwargs):
    return harness.estimator(MODEL_FN, SPEC, path, BATCH, **kwargs)


MADE = {
    HostBackend: on_host,
    EmulatedBackend: lambda path: on_host(path, device="host", num_shards=2),
    PjrtBackend: lambda path: on_host(path, device="pjrt"),
    TPUBackend: lambda path: tpu_described.estimator(MODEL_FN, SPEC, path, batch=BATCH),
}


class OfAll(tf.compat.v1.train.SessionRunHook):
    """A hook that a maintainer adds for all backends."""


def test_every_backend_is_made_here():
    assert {HostBackend, *BACKENDS.values()} == set(MADE)


@pytest.mark.parametrize("backend", MADE, ids=lambda backend: backend.__name__)
def test_every_backend_gets_what_is_added_once(backend, monkeypatch, tmp_path):
    if backend is PjrtBackend:
        pytest.importorskip("jax")
    estimator = MADE[backend](tmp_path)
    assert type(estimator.backend) is backend
    called, found = [], {}

    def noting(name, function):
        return lambda *arguments: called.append(name) or function(*arguments)

    steps = ["before_model_fn", "after_model_fn", "before_training"]
    for name in steps:
        monkeypatch.setattr(completed, name, noting(name, getattr(completed, name)))
    monkeypatch.setattr(completed.batch_sizes, "hooks", lambda: [OfAll()])
    estimator.described = tpu_described.metadata(1)
    with tpu_described._stopped_at(training, "MonitoredTrainingSession", estimator, found):
        estimator.train(input_fn, max_steps=20)
    assert called == steps
    assert [type(hook) for hook in found["hooks"]].count(OfAll) == 1
