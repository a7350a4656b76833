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
def test_a_call_says_that_it_waits_for_its_dataset(kind, call, tmp_path, caplog, request):
    caplog.set_level("INFO", "estimator_emb")
    reached, ended, in_c = threading.Event(), threading.Event(), []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    def sample(i):
        if i == AHEAD:
            reached.set()
            processes.until(lambda: f"{call}: {SAID}" in caplog.text)
            in_c.append(ctypes.pythonapi.PyOS_getsig(signal.SIGINT))
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
    if call == "predict":
        values = estimator.predict(input_fn)
        next(values)
        assert reached.wait(processes.HANGS)
        values.close()
    else:
        getattr(estimator, call)(input_fn, steps=1, hooks=[Hook()])
    assert ended.is_set() and in_c == [0]  # SIG_DFL, which ends the process.
    assert f"{SAID}, whose current op must end first. Ctrl-C ends the process." in caplog.text
    with pytest.raises(KeyboardInterrupt):  # Afterwards it has Python's handler again.
        signal.raise_signal(signal.SIGINT)


PROGRAM = """
import sys, time
import numpy as np
import tensorflow as tf
import id_program

def wait(i):
    time.sleep(10_000 * i)
    return np.zeros([4, 1], np.int64)

def batch(i):
    return {"id": tf.ensure_shape(tf.numpy_function(wait, [i], tf.int64), [4, 1])}

def input_fn(params):
    return tf.data.Dataset.range(2).map(batch).prefetch(2)

id_program.make(sys.argv[1], use_tpu=False).train(input_fn, steps=1)
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_call_that_waits_for_its_dataset(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, tmp_path],
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


def test_a_session_and_its_hooks_are_freed_with_their_call(tmp_path):
    """No garbage collection is needed to free the session, whose graph refers to the hooks."""
    made = []

    class Hook(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            made.extend([weakref.ref(session), weakref.ref(self)])

    estimator = make("plain", tmp_path)
    gc.disable()
    try:
        estimator.train(one_batch, steps=1, hooks=[Hook()])
        assert made[0]() is None
        gc.collect()
        assert made[1]() is None
    finally:
        gc.enable()
