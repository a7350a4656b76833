"""A call ends within about a second, even if its input still reads ahead."""

import gc
import signal
import subprocess
import sys
import threading
import weakref

import harness
import numpy as np
import processes
import pytest
import tensorflow as tf

import estimator_emb as ee

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("local", "emulated")]
AHEAD = 5
"""Only a prefetch reads this sample."""
WAITS = (
    "estimator_emb: The program is done, but its dataset still reads ahead. This process ends when "
    "the dataset's current op ends, or with Ctrl-C.\n"
)


def model_fn(features, labels, mode, spec):
    x = tf.cast(features, tf.float32)
    if mode == ee.ModeKeys.PREDICT:
        return spec(mode, predictions={"x": x})
    loss = tf.reduce_mean(tf.square(v1.get_variable("w", []) - x))
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
    return spec(mode, loss=loss, train_op=train_op)


def make(kind, model_dir):
    return harness.of_kind(kind, model_fn, model_dir, batch_size=1)


@pytest.mark.fast(1)
@pytest.mark.parametrize("call", ["train", "evaluate", "predict"])
@pytest.mark.parametrize("kind", ["plain", *SLOW])
def test_a_call_does_not_wait_for_its_prefetch(kind, call, tmp_path):
    reached, released = threading.Event(), threading.Event()

    def sample(i):
        if i == AHEAD:
            reached.set()
            released.wait(processes.HANGS)
        return np.int64(i)

    def input_fn(params=None):
        samples = tf.data.Dataset.range(AHEAD + 1)
        samples = samples.map(
            lambda i: tf.ensure_shape(tf.numpy_function(sample, [i], tf.int64), [])
        )
        return samples.batch(1, drop_remainder=True).prefetch(AHEAD + 1)

    estimator = make(kind, tmp_path)
    if call != "train":
        estimator.train(
            lambda params=None: tf.data.Dataset.from_tensors(np.ones(1, np.int64)), steps=1
        )

    class Hook(v1.train.SessionRunHook):
        def end(self, session):
            assert reached.wait(processes.HANGS)

    if call == "predict":
        values = estimator.predict(input_fn)
        next(values)
        assert reached.wait(processes.HANGS)
        values.close()
    else:
        getattr(estimator, call)(input_fn, steps=1, hooks=[Hook()])
    assert not released.is_set()
    assert any(one.name == "close a session" for one in threading.enumerate())
    released.set()
    processes.until(lambda: not any(one.name == "close a session" for one in threading.enumerate()))


PROGRAM = f"""
import time
import estimator_emb
estimator_emb.install()
import tensorflow as tf

def model_fn(features, labels, mode):
    loss = tf.compat.v1.get_variable("w", []) * tf.reduce_sum(tf.cast(features, tf.float32))
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

def sample(i):
    if i:
        time.sleep({2 * processes.HANGS})
    return i

def input_fn():
    samples = tf.data.Dataset.range(3)
    return samples.map(lambda i: tf.numpy_function(sample, [i], tf.int64)).prefetch(2)

tf.estimator.Estimator(model_fn, "model").train(input_fn, steps=1)
print("trained", flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_process_with_a_hanging_input(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=processes.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=processes.default_signals,
    )
    try:
        assert process.stdout.readline() == "trained\n"
        assert any(line == WAITS for line in process.stderr)
        # Python loses a signal that arrives just before it waits, so send it again.
        processes.until(
            lambda: process.send_signal(signal.SIGINT) or process.poll() is not None, pause=1
        )
        process.communicate()
    finally:
        process.kill()


def test_no_thread_starts_during_python_shutdown(tmp_path, monkeypatch):
    """A thread started then never runs, and waiting for it would hang."""
    closed_by, close = [], v1.Session.close

    def seen(session):
        closed_by.append(threading.current_thread().name)
        close(session)

    monkeypatch.setattr(v1.Session, "close", seen)
    values = make("plain", tmp_path).predict(
        lambda: tf.data.Dataset.from_tensors(np.ones(1, np.int64)).repeat()
    )
    next(values)
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    values.close()
    assert closed_by and "close a session" not in closed_by


def test_a_session_is_freed_with_its_call(tmp_path):
    """No garbage collection is needed to free it."""
    sessions = []

    class Hook(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            sessions.append(weakref.ref(session))

    estimator = make("plain", tmp_path)
    gc.disable()
    try:
        estimator.train(
            lambda: tf.data.Dataset.from_tensors(np.ones(1, np.int64)), steps=1, hooks=[Hook()]
        )
        (session,) = sessions
        assert session() is None
    finally:
        gc.enable()
