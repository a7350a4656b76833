"""A call ends when its dataset's op has ended, as on stock. After a second it says so."""

import gc
import gzip
import signal
import subprocess
import sys
import threading
import time
import weakref

import harness
import numpy as np
import processes
import pytest
import tensorflow as tf

import estimator_emb as ee

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")
KINDS = ["plain", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("local", "emulated"))]
SAID = "its steps are done. It waits for TensorFlow to close its dataset"
AHEAD = 5
"""Only a prefetch reads this sample."""


def model_fn(features, labels, mode, spec):
    x = tf.cast(features, tf.float32)
    if mode == ee.ModeKeys.PREDICT:
        return spec(mode, predictions={"x": x})
    loss = tf.reduce_mean(tf.square(v1.get_variable("w", []) - x))
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
    return spec(mode, loss=loss, train_op=train_op)


def one_batch(params=None):
    return tf.data.Dataset.from_tensors(np.ones(1, np.int64))


def make(kind, model_dir):
    return harness.of_kind(kind, model_fn, model_dir, batch_size=1)


@pytest.mark.fast(1)
@pytest.mark.parametrize("call", ["train", "evaluate", "predict"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_says_that_it_waits_for_its_dataset(kind, call, tmp_path, caplog):
    reached, ended = threading.Event(), threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def sample(i):
        if i == AHEAD:
            reached.set()
            processes.until(lambda: f"{call}: {SAID}" in caplog.text)
            time.sleep(0.2)
            ended.set()
        return np.int64(i)

    def input_fn(params=None):
        samples = tf.data.Dataset.range(AHEAD + 1)
        samples = samples.map(
            lambda i: tf.ensure_shape(tf.numpy_function(sample, [i], tf.int64), [])
        )
        return samples.batch(1, drop_remainder=True).prefetch(AHEAD + 1)

    class Hook(v1.train.SessionRunHook):
        def end(self, session):
            assert reached.wait(processes.HANGS)

    estimator = make(kind, tmp_path)
    if call != "train":
        estimator.train(one_batch, steps=1)
    if call == "predict":
        values = estimator.predict(input_fn)
        next(values)
        assert reached.wait(processes.HANGS)
        values.close()
    else:
        getattr(estimator, call)(input_fn, steps=1, hooks=[Hook()])
    assert ended.is_set()
    assert signal.getsignal(signal.SIGINT) is before


PROGRAM = f"""
import atexit, gzip, sys, time

if sys.argv[1] == "ours":
    import estimator_emb
    estimator_emb.install()
import tensorflow as tf

text = gzip.open("text.gz", "wt")
text.write("written")
atexit.register(lambda: print("atexit", flush=True))

def model_fn(features, labels, mode):
    loss = tf.compat.v1.get_variable("w", []) * tf.reduce_sum(tf.cast(features, tf.float32))
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

def sleep(i):
    if i:
        time.sleep(2 if sys.argv[2] == "ends" else {2 * processes.HANGS})
    return i

def input_fn():
    samples = tf.data.Dataset.range(3)
    return samples.map(lambda i: tf.numpy_function(sleep, [i], tf.int64)).prefetch(2)

tf.estimator.Estimator(model_fn, "model").train(input_fn, steps=1)
print("trained", flush=True)
sys.exit(7)
"""


@pytest.mark.slow
@pytest.mark.parametrize("side", ["ours", "stock"])
def test_a_process_that_waited_writes_what_it_left_open(side, tmp_path):
    done = processes.run_side(side, "-c", PROGRAM, side, "ends", cwd=tmp_path, status=7)
    assert done.stdout.splitlines() == ["trained", "atexit"]
    assert (SAID in done.stderr) == (side == "ours")
    assert gzip.open(tmp_path / "text.gz", "rt").read() == "written"


@pytest.mark.slow
def test_ctrl_c_ends_a_call_that_waits_for_its_dataset(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "ours", "hangs"],
        cwd=tmp_path,
        env=processes.environment(),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=processes.default_signals,
    )
    try:
        assert any(SAID in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        assert process.wait(processes.HANGS) == -signal.SIGINT
    finally:
        process.kill()
        process.communicate()


def test_no_thread_starts_during_python_shutdown(tmp_path, monkeypatch):
    """A thread started then never runs, and waiting for it would hang."""
    started = []
    values = make("plain", tmp_path).predict(lambda: one_batch().repeat())
    next(values)
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    monkeypatch.setattr(threading.Timer, "start", lambda timer: started.append(timer))
    values.close()
    assert not started


def test_a_session_is_freed_with_its_call(tmp_path):
    """No garbage collection is needed to free it."""
    sessions = []

    class Hook(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            sessions.append(weakref.ref(session))

    estimator = make("plain", tmp_path)
    gc.disable()
    try:
        estimator.train(one_batch, steps=1, hooks=[Hook()])
        (session,) = sessions
        assert session() is None
    finally:
        gc.enable()
