"""SIGTERM, SIGHUP and Ctrl-C end a training after its current step, and save the model."""

import contextlib
import logging
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
DEFAULTS = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}


def input_that_sends(number, batch, repeat=1):
    """Returns an input_fn that sends this process a signal when it reads a given batch."""
    read = []

    def send(ids):
        read.append(len(read))
        if len(read) == batch:
            for _ in range(repeat):
                os.kill(os.getpid(), number)
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
    caplog.set_level(logging.WARNING, "estimator_emb")
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
    options = {**WAYS[way], "iterations": 50 if way != "host" else 1}
    estimator = make(tmp_path, **options)
    hooks = [CheckpointInputPipelineHook(estimator, "ignore")]
    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit) as ended:
        # The signal is sent twice at once, as `timeout` sends it.
        estimator.train(input_that_sends(number, batch=5, repeat=2), hooks=hooks, max_steps=50)
    if number != signal.SIGINT:
        assert ended.value.code == 128 + number
    assert len(ended.traceback) < 8 and ended.value.__suppress_context__  # Few frames.
    step = int(estimator.get_variable_value("global_step"))
    # A loop of 50 steps ends with the step that got the signal, or the next.
    per_step = 2 if "2 cores" in way else 1
    assert 4 // per_step <= step <= 5 // per_step + 2
    saved = f"{tmp_path}/model.ckpt-{step}"
    assert estimator.latest_checkpoint() == saved
    assert os.path.exists(f"{tmp_path}/input.ckpt-{step}.index")
    begins, ends = harness.said(caplog)
    assert begins.startswith(f"{number.name}: training ends with this step.")
    assert ends == f"{number.name} ended the training at step {step}. {SAVED.format(saved)}"


def test_a_signal_before_the_first_step_ends_at_once(tmp_path, caplog):
    estimator = make(tmp_path)

    def input_fn(params):
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("The signal ends it before.")

    with pytest.raises(SystemExit) as ended:
        estimator.train(input_fn, max_steps=2)
    assert ended.value.code == 143  # 128 + SIGTERM.
    assert harness.said(caplog) == ["SIGTERM ended the training before its first step."]
    assert stopping.received() == 0  # No training runs any more.


def test_another_signal_ends_the_process_at_once(monkeypatch, capsys):
    monkeypatch.setattr(stopping, "_SAME_SIGNAL_SECONDS", 0.0)
    monkeypatch.setattr(os, "_exit", lambda status: print(status, file=sys.stderr))
    with pytest.raises(SystemExit), stopping.at_end_of_step("", True):
        for _ in range(2):
            with contextlib.suppress(SystemExit):
                os.kill(os.getpid(), signal.SIGTERM)
    assert capsys.readouterr().err == "estimator_emb: SIGTERM again: ended at once.\n143\n"


def test_one_of_several_hosts_ends_when_all_agree():
    with pytest.raises(SystemExit, match="143"):  # 128 + SIGTERM, the agreed signal.
        with stopping.at_end_of_step("", True, alone=False) as (training,):
            with stopping.evaluating():
                assert training.evaluates
            assert not training.evaluates
            training.before_run(None)
            os.kill(os.getpid(), signal.SIGHUP)
            assert stopping.received() == signal.SIGHUP and not stopping.requested()
            stopping.agree(signal.SIGTERM)
            assert stopping.requested()


def test_a_keyboard_interrupt_without_a_signal_is_raised():
    open_files = os.listdir("/proc/self/fd")
    with pytest.raises(KeyboardInterrupt), stopping.at_end_of_step("", True) as (training,):
        assert training.reader.is_alive()
        raise KeyboardInterrupt
    assert not training.reader.is_alive() and os.listdir("/proc/self/fd") == open_files


def test_a_stop_without_checkpoints_is_logged(tmp_path, caplog):
    saves_nothing = {"save_checkpoints_steps": None, "save_checkpoints_secs": None}
    with pytest.raises(SystemExit):
        without_tables(tmp_path, saves_nothing).train(input_that_sends(signal.SIGTERM, 2))
    assert "It saves no checkpoints, so that its steps are lost." in harness.said(caplog)[1]


def test_a_damaged_model_directory_does_not_hide_the_signal(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(checkpoint_files, "PAUSE", 0)

    class Empties(tf1.train.SessionRunHook):
        def end(self, session):
            (tmp_path / "checkpoint").write_text("")

    # Hooks end in the order of their list, and the estimator's own saver comes after a program's.
    saver = tf1.train.CheckpointSaverHook(str(tmp_path), save_steps=100)
    train = without_tables(tmp_path).train
    with pytest.raises(SystemExit) as ended:
        train(input_that_sends(signal.SIGTERM, 2), hooks=[saver, Empties()])
    assert ended.value.code == 143
    state = tmp_path / "checkpoint"
    assert f"file '{state}', which says which checkpoint is the latest, is empty.\n" in caplog.text


@pytest.mark.parametrize("ignored", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_programs_own_handler_is_kept(ignored, tmp_path):
    """The handler may also ignore the signal, as a shell sets it for a background job."""
    received, steps = [], []
    own = signal.SIG_IGN if ignored else lambda number, frame: received.append(number)
    signal.signal(signal.SIGTERM, own)

    def interrupt():
        steps.append(1)
        if len(steps) == 4:  # This signal still has our handler.
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path).train(
            input_that_sends(signal.SIGTERM, 2), hooks=[harness.AfterStep(interrupt)], max_steps=40
        )
    assert received == ([] if ignored else [signal.SIGTERM])
    assert harness.last_step(tmp_path) in (4, 5)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_an_error_after_a_signal_is_raised():
    with pytest.raises(ZeroDivisionError), stopping.at_end_of_step("", True) as (training,):
        training.before_run(None)
        os.kill(os.getpid(), signal.SIGTERM)
        1 / 0  # noqa: B018 - an error of the program.


def test_a_training_in_a_thread_sets_no_handlers():
    seen = []

    def train():
        with stopping.at_end_of_step("", True):
            seen.extend(signal.getsignal(number) for number in DEFAULTS)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert seen == list(DEFAULTS.values())


def test_the_wakeup_of_an_event_loop_is_kept():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    open_files = os.listdir("/proc/self/fd")
    with pytest.raises(SystemExit), stopping.at_end_of_step("", True) as (training,):
        training.before_run(None)
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.set_wakeup_fd(-1) == writing
    assert os.listdir("/proc/self/fd") == open_files
    os.close(reading)
    os.close(writing)


def test_a_forked_process_has_default_handlers():
    with stopping.at_end_of_step("", True) as (training,):
        child = os.fork()
        if not child:
            if training.reader is None:  # The thread and its pipe belong to the parent.
                signal.raise_signal(signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


@pytest.mark.fast(1)
@pytest.mark.parametrize("use_tpu", [False, True])
def test_a_signal_ends_train_and_evaluate_in_an_evaluation(use_tpu, tmp_path, caplog):
    run = {**harness.SILENT, "save_checkpoints_steps": 2}
    estimator = make(tmp_path) if use_tpu else without_tables(tmp_path, run)
    train = ee.TrainSpec(input_of(400), max_steps=8)
    sends = ee.EvalSpec(input_that_sends(signal.SIGTERM, 3), 90, throttle_secs=0)
    with pytest.raises(SystemExit) as ended:
        ee.train_and_evaluate(estimator, train, sends)
    assert ended.value.code == 143 and len(ended.traceback) < 14  # Few frames are shown.
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
    process = subprocess.Popen(
        [sys.executable, *command, tmp_path / "program.py", how, model_dir],
        env=processes.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
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
    assert len(lines) <= 14, log
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
