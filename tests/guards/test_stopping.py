"""SIGTERM, SIGHUP and Ctrl-C end a training after its current step, and save the model.

`make` and `without_tables` return a TPUEstimator for the batches of `input_of(samples)`. WAYS says
where it runs: way -> arguments of `make`.
"""

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
import time

import harness
import id_program
import processes
import pytest
import tensorflow as tf
from id_program import WAYS, input_of, make
from small_programs import without_tables

import estimator_emb as ee
from estimator_emb.checkpoints.files import checkpoint_files
from estimator_emb.guards import stopping
from estimator_emb.legacy.input_checkpoint import CheckpointInputPipelineHook

tf1 = tf.compat.v1
SAVED = "The model is saved in {}: run the program again to go on from there."
DEFAULTS = dict.fromkeys((signal.SIGTERM, signal.SIGHUP), signal.SIG_DFL)
DEFAULTS[signal.SIGINT] = signal.default_int_handler


def input_that_sends(number, batch, repeat=1):
    """Returns an input_fn that sends this process a signal when it reads a given batch."""
    read = []

    def send(ids):
        read.append(len(read))
        if len(read) == batch:
            for _ in range(repeat):
                os.kill(os.getpid(), number)
            if repeat > 1:  # Another thread receives it: the main thread waits in TensorFlow.
                processes.until(stopping.received)
        return ids

    def input_fn(params):
        def read_one(features):
            ids = tf.numpy_function(send, [features["id"]], tf.int64)
            return {"id": tf.ensure_shape(ids, [params["batch_size"], 1])}

        # Each step reads its own batch, without reading ahead.
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        return input_of(400)(params).map(read_one).with_options(options)

    return input_fn


@pytest.fixture(autouse=True)
def handlers(caplog):
    """Sets the default handlers, as a program finds them, and restores them afterwards."""
    caplog.set_level("WARNING", "estimator_emb")
    before = {number: signal.signal(number, default) for number, default in DEFAULTS.items()}
    yield
    for number, default in DEFAULTS.items():
        assert signal.getsignal(number) == default
        signal.signal(number, before[number])
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    "way, number",
    [
        ("host", signal.SIGHUP),
        ("emulated, 2 cores", signal.SIGTERM),
        ("emulated, pipelined", signal.SIGINT),
    ],
)
def test_a_signal_ends_a_training_at_the_end_of_a_step(way, number, tmp_path, caplog, monkeypatch):
    # A busy machine may take long between two signals.
    monkeypatch.setattr(stopping, "_SAME_SIGNAL_SECONDS", 600.0)
    options = {**WAYS[way], "iterations": 50 if way != "host" else 1}  # Steps of a TPU's loop.
    estimator = make(tmp_path, **options)
    hooks = [CheckpointInputPipelineHook(estimator, "ignore")]
    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit) as ended:
        # The signal is sent twice at once, as `timeout` sends it.
        estimator.train(input_that_sends(number, batch=5, repeat=2), hooks=hooks, max_steps=50)
    if number != signal.SIGINT:
        assert ended.value.code == 128 + number
    assert len(ended.traceback) < 8 and ended.value.__suppress_context__  # Without TensorFlow's.
    step = int(estimator.get_variable_value("global_step"))
    # A step takes a batch for each core. Training ends with the step that got the signal, as it
    # read batch 5, or with the next. A pipelined lookup reads a batch ahead.
    per_step = 2 if "2 cores" in way else 1
    assert 4 // per_step <= step <= 5 // per_step + 2
    saved = f"{tmp_path}/model.ckpt-{step}"
    assert estimator.latest_checkpoint() == saved
    assert os.path.exists(f"{tmp_path}/input.ckpt-{step}.index")
    begins, ends = harness.said(caplog)
    assert begins.startswith(f"{number.name}: training ends with this step.")
    assert ends == f"{number.name} ended the training at step {step}. {SAVED.format(saved)}"


def test_a_signal_before_the_first_step_ends_at_once(tmp_path, caplog):
    def input_fn(params):
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("The signal ends it before.")

    status = harness.refusal(SystemExit, make(tmp_path).train, input_fn, max_steps=2)
    assert status == str(128 + signal.SIGTERM)
    assert harness.said(caplog) == ["SIGTERM ended the training before its first step."]
    assert stopping.received() == 0  # No training runs any more.


def test_another_signal_ends_the_process_at_once(monkeypatch):
    monkeypatch.setattr(stopping, "_SAME_SIGNAL_SECONDS", 0.0)  # None is taken for a repetition.
    written, ended = io.BytesIO(), []
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(written))  # Keeps lines until a flush.
    monkeypatch.setattr(os, "_exit", lambda status: ended.append((status, written.getvalue())))
    with pytest.raises(SystemExit), stopping.at_end_of_step("", True, alone=True):
        for _ in range(2):
            with contextlib.suppress(SystemExit):
                os.kill(os.getpid(), signal.SIGTERM)
    assert ended == [(128 + signal.SIGTERM, b"estimator_emb: SIGTERM again: ended at once.\n")]


def test_one_of_several_hosts_ends_when_all_agree():
    """This host gets a SIGHUP, and trains on until the hosts agree on another host's SIGTERM."""
    with pytest.raises(SystemExit, match=str(128 + signal.SIGTERM)):
        with stopping.at_end_of_step("", True, alone=False) as (training,):
            with stopping.evaluating():  # Only the log line about a signal depends on this.
                assert training.evaluates
            assert not training.evaluates
            training.before_run(None)  # Before the first step, a signal would end it at once.
            assert stopping.received() == 0
            os.kill(os.getpid(), signal.SIGHUP)
            assert stopping.received() == signal.SIGHUP and not stopping.requested()
            stopping.agree(signal.SIGTERM)
            assert stopping.requested()


def test_a_keyboard_interrupt_without_a_signal_is_raised():
    with pytest.raises(KeyboardInterrupt), stopping.at_end_of_step("", True, alone=True):
        raise KeyboardInterrupt  # As a program may, without Ctrl-C.


def test_a_stop_without_checkpoints_is_logged(tmp_path, caplog):
    saves_nothing = {"save_checkpoints_steps": None, "save_checkpoints_secs": None}
    with pytest.raises(SystemExit):
        without_tables(tmp_path, saves_nothing).train(input_that_sends(signal.SIGTERM, 2))
    _of_the_signal, of_the_end = harness.said(caplog)[:2]
    assert "It saves no checkpoints, so that its steps are lost." in of_the_end


def test_a_damaged_model_directory_does_not_hide_the_signal(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(checkpoint_files, "PAUSE", 0)

    class Empties(tf1.train.SessionRunHook):
        def end(self, session):
            (tmp_path / "checkpoint").write_text("")

    # Hooks end in the order of their list, and the estimator's own saver comes after a program's.
    saver = tf1.train.CheckpointSaverHook(str(tmp_path), save_steps=100)
    train, sends = without_tables(tmp_path).train, input_that_sends(signal.SIGTERM, 2)
    status = harness.refusal(SystemExit, train, sends, hooks=[saver, Empties()])
    assert status == str(128 + signal.SIGTERM)
    state = tmp_path / "checkpoint"
    assert f"file '{state}', which says which checkpoint is the latest, is empty.\n" in caplog.text


@pytest.mark.parametrize("ignored", [False, harness.slow(True)])
def test_the_programs_own_handler_is_kept(ignored, tmp_path):
    """SIGTERM, which the program handles or ignores, does not end the training. SIGINT does."""
    received, steps = [], []
    own = signal.SIG_IGN if ignored else lambda number, frame: received.append(number)
    signal.signal(signal.SIGTERM, own)

    def interrupt():
        steps.append(1)
        if len(steps) == 4:
            os.kill(os.getpid(), signal.SIGINT)

    hooks, sends = [harness.AfterStep(interrupt)], input_that_sends(signal.SIGTERM, 2)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path).train(sends, hooks=hooks, max_steps=40)
    assert received == ([] if ignored else [signal.SIGTERM])
    assert harness.last_step(tmp_path) in (4, 5)  # The step of SIGINT, or the next.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_an_error_after_a_signal_is_raised(tmp_path):
    def fail():
        os.kill(os.getpid(), signal.SIGTERM)
        raise ValueError("of the program")

    with pytest.raises(ValueError, match="of the program"):  # Not SystemExit.
        without_tables(tmp_path).train(input_of(16), hooks=[harness.AfterStep(fail)], max_steps=2)


def test_a_training_in_a_thread_sets_no_handlers(tmp_path):
    seen = []

    def look():
        seen.append([signal.getsignal(number) for number in DEFAULTS])

    arguments = {"hooks": [harness.AfterStep(look)], "max_steps": 1}
    train = without_tables(tmp_path).train
    thread = threading.Thread(target=train, args=[input_of(16)], kwargs=arguments)
    thread.start()
    thread.join()
    assert seen == [list(DEFAULTS.values())]  # Python lets only the main thread set others.


def test_the_wakeup_of_an_event_loop_is_kept(tmp_path):
    """An event loop learns of signals by its own file descriptor."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    try:
        with pytest.raises(SystemExit):
            without_tables(tmp_path).train(input_that_sends(signal.SIGTERM, 2), max_steps=40)
    finally:
        assert signal.set_wakeup_fd(-1) == writing
    os.close(reading)
    os.close(writing)


def test_a_forked_process_has_default_handlers(tmp_path):
    """Pools end their processes by SIGTERM, which must not wait for the end of a step."""
    status = []

    def fork():
        child = os.fork()
        if not child:
            signal.raise_signal(signal.SIGTERM)
            os._exit(0)
        status.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    without_tables(tmp_path).train(input_of(16), hooks=[harness.AfterStep(fork)], max_steps=2)
    assert status == [-signal.SIGTERM] * 2
    assert harness.last_step(tmp_path) == 2


@pytest.mark.fast(1)
@pytest.mark.parametrize("use_tpu", [False, True])
def test_a_signal_ends_train_and_evaluate_in_an_evaluation(use_tpu, tmp_path, caplog):
    run = {**harness.SILENT, "save_checkpoints_steps": 2}
    estimator = make(tmp_path) if use_tpu else without_tables(tmp_path, run)
    train = ee.TrainSpec(input_of(400), max_steps=8)
    sends = ee.EvalSpec(input_that_sends(signal.SIGTERM, 3), 90, throttle_secs=0)
    with pytest.raises(SystemExit) as ended:
        ee.train_and_evaluate(estimator, train, sends)
    assert ended.value.code == 128 + signal.SIGTERM
    assert len(ended.traceback) < 14  # Without TensorFlow's frames.
    # The evaluation is abandoned, but the model that it was to evaluate is saved.
    assert estimator.latest_checkpoint() == f"{tmp_path}/model.ckpt-2"
    assert not list(tmp_path.glob("eval/events*"))
    begins, ends = harness.said(caplog)
    assert begins.startswith("SIGTERM: this evaluation ends, and training ends without another")
    assert ends == f"SIGTERM ended the training. {SAVED.format(f'{tmp_path}/model.ckpt-2')}"


@pytest.mark.fast(1)
@pytest.mark.parametrize("use_tpu", [False, True])
def test_ctrl_c_in_an_evaluation_hides_tensorflows_frames(use_tpu, tmp_path):
    estimator = make(tmp_path, use_tpu=use_tpu)
    for call, steps in {"evaluate": {"steps": 90}, "predict": {}}.items():
        with pytest.raises(KeyboardInterrupt) as ended:
            harness.run(call, estimator, input_that_sends(signal.SIGINT, 3), **steps)
        assert not [entry for entry in ended.traceback if "site-packages" in str(entry.path)]
    assert not stopping.requested()


PROGRAM = """
import sys, time
import numpy as np
import tensorflow as tf
import id_program as tests

how, model_dir = sys.argv[1:]
reads = []

def slowly(ids):
    reads.append(0)
    if len(reads) == 4:
        print("trains", flush=True)
        time.sleep(10_000 if how == "hangs" else 1)
    return ids

def input_fn(params):
    ids = tf.data.Dataset.from_tensors(np.zeros([4, 1], np.int64)).repeat()
    ids = ids.map(lambda ids: tf.ensure_shape(tf.numpy_function(slowly, [ids], tf.int64), [4, 1]))
    return ids.map(lambda ids: {"id": ids})

tests.make(model_dir).train(input_fn, max_steps=1000000)
print("goes on", flush=True)
"""


@pytest.mark.slow
@pytest.mark.any_version
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    # With "steps" the training goes on until the signal, with "hangs" it needs a second signal. The
    # status is 128 + the signal, but after a KeyboardInterrupt Python itself ends by SIGINT.
    "runner, how, number, status",
    [
        ("run", "steps", signal.SIGINT, 130),
        ("python", "steps", signal.SIGINT, -signal.SIGINT),
        ("python", "steps", signal.SIGTERM, 143),
        ("run", "steps", signal.SIGHUP, 129),
        ("python", "hangs", signal.SIGINT, 130),
        ("run", "hangs", signal.SIGTERM, 143),
    ],
)
def test_a_stopped_program_prints_few_lines(runner, how, number, status, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    model_dir = str(tmp_path / "model")
    command = ["-m", "estimator_emb", "run"] if runner == "run" else []
    words = [sys.executable, *command, tmp_path / "program.py", how, model_dir]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, env=processes.environment(), **pipes)
    assert process.stdout.readline() == "trains\n", process.communicate()[1]
    process.send_signal(number)
    if how == "hangs":
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)
        # A busy machine may take the first signals for the same signal, so send more.
        while process.poll() is None:
            process.send_signal(number)
            time.sleep(1.5)
    output, log = process.communicate(timeout=processes.HANGS)
    assert output == ""
    if "its steps are done. It waits for TensorFlow to close its dataset" in log:
        # The dataset hung ahead of the step that the first signal ended.
        assert how == "hangs" and process.returncode == -number, log
        return
    assert process.returncode == status, log
    lines = log[log.index(f"{number.name}: training ends with this step.") :].splitlines()
    lines = [line for line in lines if not line.startswith("estimator_emb: step ")]
    assert len(lines) <= 14, log  # At most the log lines and a traceback of the program's frames.
    if how == "hangs":
        assert lines[-1] == f"estimator_emb: {number.name} again: ended at once."
        return
    saved, step = tf.train.latest_checkpoint(model_dir), harness.last_step(model_dir)
    assert f"estimator_emb: step {step:,} of 1,000,000, mean loss " in log
    told = f"{number.name} ended the training at step {step}. {SAVED.format(saved)}"
    assert lines[1].endswith(told)
    last = "KeyboardInterrupt"
    if number != signal.SIGINT:
        last = lines[1]
    elif runner == "run":
        last = f"estimator-emb: {tmp_path}/program.py was interrupted."
    assert lines[-1] == last


@pytest.mark.slow
def test_sigterm_ends_worker_and_chief_of_a_cluster(tmp_path):
    jobs = {"chief": 1, "worker": 1, "ps": 1}
    arguments = [str(tmp_path), "1000000"]
    with processes.Processes(tmp_path, id_program.UNTIL_THE_END, arguments, jobs) as cluster:
        started = {job: cluster.start(job) for job in jobs}
        cluster.until(lambda: harness.last_step(tmp_path))
        # The worker has joined.
        cluster.until(lambda: "estimator_emb: step " in started["worker"].log.read_text())
        for job in ("worker", "chief"):
            started[job].send_signal(signal.SIGTERM)
            cluster.ended(started[job], status=143)
            log = started[job].log.read_text()
            lines = log[log.index("SIGTERM: training ends with this step.") :].splitlines()
            lines = [line for line in lines if not line.startswith("estimator_emb: step ")]
            saved, step = tf.train.latest_checkpoint(str(tmp_path)), harness.last_step(tmp_path)
            where = f"at step {step}. {SAVED.format(saved)}"
            assert "SIGTERM ended the training at step " in lines[1] and len(lines) == 2
            assert lines[1].endswith("The chief saves the model." if job == "worker" else where)
