"""A call ends when its dataset's op has ended, as on stock. After a second it says so."""

import ctypes
import gc
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
KINDS = ["plain", *(harness.slow(kind) for kind in ("local", "emulated"))]
SAID = "its steps are done. It waits for TensorFlow to close its dataset"
AHEAD = 5
"""Number of a sample that no step needs. Only the dataset's prefetch reads it."""


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
def test_a_call_says_that_it_waits_for_its_dataset(kind, call, tmp_path, caplog, request):
    """The call takes one step, and ends while the prefetch is in the op of sample AHEAD."""
    caplog.set_level("INFO", "estimator_emb")
    reached, ended = threading.Event(), threading.Event()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # As in a program.
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    def sample(i):
        if i == AHEAD:
            reached.set()
            processes.until(lambda: f"{call}: {SAID}" in caplog.text)
            assert ctypes.pythonapi.PyOS_getsig(signal.SIGINT) == 0  # C's default ends the process.
            time.sleep(0.2)  # A call that did not wait would return now, before `ended`.
            ended.set()
        return np.int64(i)

    def input_fn(params=None):
        samples = tf.data.Dataset.range(AHEAD + 1)
        samples = samples.map(lambda i: tf.numpy_function(sample, [i], tf.int64))
        samples = samples.map(lambda i: tf.ensure_shape(i, []))
        return samples.batch(1, drop_remainder=True).prefetch(AHEAD + 1)

    class Hook(v1.train.SessionRunHook):
        def end(self, session):
            assert reached.wait(processes.HANGS)

    estimator = make(kind, tmp_path)
    if call == "predict":
        values = estimator.predict(input_fn)
        next(values)
        assert reached.wait(processes.HANGS)
        values.close()
    else:
        getattr(estimator, call)(input_fn, steps=1, hooks=[Hook()])
    assert ended.is_set()
    assert f"{SAID}, whose current op must end first. Ctrl-C ends the process." in caplog.text
    with pytest.raises(KeyboardInterrupt):  # After the call, Ctrl-C has Python's handler again.
        signal.raise_signal(signal.SIGINT)


PROGRAM = """
import sys, time
import numpy as np
import tensorflow as tf
import id_program

def wait(i):
    time.sleep(10_000 * i)  # The second batch hangs.
    return np.zeros([4, 1], np.int64)

def batch(i):
    return {"id": tf.ensure_shape(tf.numpy_function(wait, [i], tf.int64), [4, 1])}

def input_fn(params):
    return tf.data.Dataset.range(2).map(batch).prefetch(2)

id_program.make(sys.argv[1], use_tpu=False).train(input_fn, steps=1)
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_call_that_waits_for_its_dataset(tmp_path):
    options = {"env": processes.environment(), "preexec_fn": processes.default_signals}
    command = [sys.executable, "-c", PROGRAM, tmp_path]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)
    try:
        assert any(SAID in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        assert process.wait(processes.HANGS) == -signal.SIGINT
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("shutdown, threads", [(False, 1), (True, 0)])
def test_no_thread_starts_during_python_shutdown(shutdown, threads, tmp_path, monkeypatch):
    """The thread that says that a call waits would never run, and waiting for it would hang."""
    started = []
    values = make("plain", tmp_path).predict(lambda: one_batch().repeat())
    next(values)
    monkeypatch.setattr(sys, "is_finalizing", lambda: shutdown)
    monkeypatch.setattr(threading.Timer, "start", lambda timer: started.append(timer))
    values.close()
    assert len(started) == threads


def test_a_session_is_freed_with_its_call(tmp_path):
    """Garbage collections are off: a reference cycle would keep the session."""
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
