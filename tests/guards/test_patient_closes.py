"""A call and its process end within about a second, even if the input still reads ahead."""

import gc
import os
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
import atexit, os, sys, threading, time

process = os.getpid()
atexit.register(lambda: print("first" if os.getpid() == process else "copied"))
import estimator_emb
from estimator_emb.guards import patient_closes
estimator_emb.install()
import tensorflow as tf

if sys.argv[2] == "no copy":
    patient_closes._CAN_COPY = False
if sys.argv[2] == "copy hangs":
    os.register_at_fork(after_in_child=lambda: time.sleep({2 * processes.HANGS}))
patient_closes._COPY_SECONDS = 1 if sys.argv[2] == "copy hangs" else {processes.HANGS}
eager = iter(tf.data.Dataset.range(9).map(lambda i: i + 1, num_parallel_calls=2).prefetch(2))
print(next(eager).numpy())
left_open = open("left_open.txt", "w")
left_open.write("written")

def model_fn(features, labels, mode):
    loss = tf.compat.v1.get_variable("w", []) * tf.reduce_sum(tf.cast(features, tf.float32))
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

def sleep(i):
    if i:
        time.sleep({2 * processes.HANGS})
    return i

def compute():
    yield 0
    while True:
        pass

def read(i):
    # Nobody writes to this named pipe, so TensorFlow's op waits for ever.
    text = tf.io.read_file(tf.gather(["/dev/null", "pipe"], tf.minimum(i, 1)))
    return tf.cast(tf.strings.length(text), tf.int64)

def input_fn():
    samples = tf.data.Dataset.range(3)
    if sys.argv[1] == "sleeps":
        samples = samples.map(lambda i: tf.numpy_function(sleep, [i], tf.int64))
    elif sys.argv[1] == "computes":
        of_each = tf.TensorSpec([], tf.int64)
        samples = tf.data.Dataset.from_generator(compute, output_signature=of_each)
    else:
        samples = samples.map(read)
    return samples.prefetch(2)

train = lambda: tf.estimator.Estimator(model_fn, "model").train(input_fn, steps=1)
if sys.argv[2] == "thread":
    threading.Thread(target=train).start()
else:
    train()
atexit.register(lambda: print("last" if os.getpid() == process else "copied"))
threading.Thread(target=lambda: time.sleep(1) or print("thread")).start()
print("trained")
"""
OUTPUT = ["1", "trained", "thread", "last", "first"]
ENDS = {"": 0, "sys.exit(7)": 7, "raise ValueError": 1, "raise KeyboardInterrupt": -signal.SIGINT}
"""Last line of a program -> its exit status."""


def start(program, reads, ends_by, folder):
    os.mkfifo(folder / "pipe")
    return subprocess.Popen(
        [sys.executable, "-c", program, reads, ends_by],
        cwd=folder,
        env=processes.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=processes.default_signals,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "reads, end",
    [("sleeps", end) for end in ENDS] + [("computes", "sys.exit(7)"), ("reads", "sys.exit(7)")],
)
def test_a_process_does_not_wait_for_its_input(reads, end, tmp_path):
    process = start(PROGRAM + end, reads, "copy", tmp_path)
    out, err = process.communicate(timeout=processes.HANGS)
    assert process.returncode == ENDS[end], err
    assert out.splitlines() == OUTPUT
    assert WAITS not in err
    assert ("Traceback" in err) == end.startswith("raise")
    assert (tmp_path / "left_open.txt").read_text() == "written"


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="no thread trains when Python ends")
def test_a_process_does_not_wait_for_the_input_of_a_thread(tmp_path):
    """The main thread ends first."""
    process = start(PROGRAM, "sleeps", "thread", tmp_path)
    out, err = process.communicate(timeout=processes.HANGS)
    assert process.returncode == 0, err
    assert out.splitlines() == OUTPUT
    assert "Traceback" not in err and WAITS not in err


@pytest.mark.slow
@pytest.mark.parametrize("ends_by", ["no copy", "copy hangs"])
def test_ctrl_c_ends_a_process_that_waits_for_its_input(ends_by, tmp_path):
    process = start(PROGRAM, "sleeps", ends_by, tmp_path)
    try:
        assert any(line == WAITS for line in process.stderr)
        time.sleep(2)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(processes.HANGS) == -signal.SIGINT
        out, _ = process.communicate()
        assert out.splitlines() == (OUTPUT if ends_by == "copy hangs" else OUTPUT[:3])
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
