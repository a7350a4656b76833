"""Training progress: on stderr, as the example programs show it, and in the log."""

import contextlib
import io
import logging
import math
import re
import sys
import time

import harness
import pytest
import tensorflow as tf

from estimator_emb.reporting import progress

pytestmark = pytest.mark.any_version


class Terminal(io.StringIO):
    def isatty(self):
        return True


def train(*hooks, steps, failing_at=None):
    """Runs a training loop. The loss of step i is i, but NaN, an error, for step `failing_at`."""
    with tf.Graph().as_default():
        step = tf.compat.v1.train.get_or_create_global_step()
        train_op = tf.compat.v1.assign_add(step, 1)
        loss = tf.cast(train_op, tf.float32)
        if failing_at is not None:
            loss = tf.where(tf.equal(train_op, failing_at), float("nan"), loss)
            loss = tf.debugging.check_numerics(loss, "bad loss")
        tf.identity(loss, name="loss")
        tf.compat.v1.losses.add_loss(loss)  # As an Estimator does.
        hooks = [*hooks, tf.compat.v1.train.StopAtStepHook(last_step=steps)]
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            while not session.should_stop():
                session.run(train_op)


@pytest.fixture
def logged(caplog, monkeypatch):
    """Returns a function that returns this package's log lines. No training has logged before."""
    monkeypatch.setattr(progress.ProgressLog, "_ended", {})
    caplog.set_level(logging.INFO, logger="estimator_emb")
    return lambda: harness.said(caplog)


def test_progress_log_of_repeated_trainings_skips_lines(logged, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 10.0)
    for _ in range(5):  # Lines after 0, 10 and 20 seconds.
        train(progress.ProgressLog(3, None, None, "model"), steps=3)
        now[0] += 5.0
    train(progress.ProgressLog(3, None, None, "another model"), steps=3)  # The fourth line.
    # The losses are 1 to 3. The clock stands still in a training, so the speed is meaningless.
    form = r"step 3 of 3, mean loss 2\.0000, [\d,.]+ steps/s"
    assert [re.fullmatch(form, line) is not None for line in logged()] == [True] * 4


@pytest.mark.parametrize(
    "seconds, shown",  # Each line's step, and the mean of the losses since the line before.
    [
        (math.inf, [(5, 3)]),
        (0.5, [(2, 1.5), (4, 3.5), (5, 5)]),
        (0.0, [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (5, 5)]),  # The end repeats the last mean.
    ],
)
def test_progress_is_logged_or_printed_in_lines(seconds, shown, logged, capsys, monkeypatch):
    """Here a step of 8 examples takes 0.25 seconds. Lines are `seconds` apart, except the last."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", seconds)
    step = harness.AfterStep(lambda: now.__setitem__(0, now[0] + 0.25))
    log = progress.ProgressLog(None, 5, 8, "model")
    train(step, log, progress.ProgressHook(5, 8, "loss"), steps=5)
    lines = [f"step {step} of 5, mean loss {loss:.4f}, 32 examples/s" for step, loss in shown]
    assert logged() == lines
    assert capsys.readouterr().err.splitlines() == lines  # There is no terminal.


def test_progress_log_says_from_the_second_run_on_that_the_global_step_stays(logged, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    with tf.Graph().as_default():
        step = tf.compat.v1.train.get_or_create_global_step()
        log = progress.ProgressLog(None, 5, None, "model")
        with tf.compat.v1.train.MonitoredSession(hooks=[log]) as session:
            for _ in range(3):
                session.run(step)
    # After the second run, after the third and at the end.
    assert logged() == ["step 0 of 5, 0.0 steps/s, no step raises the global step"] * 3


@pytest.mark.parametrize("failing_at", [None, 4])
def test_progress_on_a_terminal_is_a_bar_that_an_error_closes(failing_at, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_UPDATES", 0.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    hook = progress.ProgressHook(5, 8, "loss")  # Updated after each step, so with its loss alone.
    fails = pytest.raises(tf.errors.InvalidArgumentError)
    with fails if failing_at else contextlib.nullcontext():
        train(hook, steps=5, failing_at=failing_at)
    shown = sys.stderr.getvalue()
    drawn = re.findall(r"(\d)/5 steps \[[^\r]* mean loss (\d)\.0000", shown)
    steps = "123" if failing_at else "12345"
    assert list(dict.fromkeys(drawn)) == list(zip(steps, steps, strict=True))
    assert shown.endswith("\n") and hook._bar is None


def test_a_pause_in_a_pause_counts_once(monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: now)
    now = 1.0
    before = progress.clock()
    with progress.pausing(), progress.pausing():
        now = 3.0  # A pause of 2 seconds.
    now = 7.0
    assert progress.clock() == before + 6.0 - 2.0


def test_a_missing_loss_is_left_out_of_progress(capsys, caplog):
    train(progress.ProgressHook(None, 8, "no_such_loss"), steps=5)
    assert re.fullmatch(r"step 5, [\d,]+ examples/s\n", capsys.readouterr().err)
    assert "no tensor 'no_such_loss:0'" in caplog.text


@pytest.mark.fast(1)
@pytest.mark.parametrize("device, tag", [(None, "loss"), ("host", "loss_1")])
def test_losses_of_training_and_evaluation_share_a_tag(tmp_path, device, tag, capsys):
    """Lets TensorBoard draw both curves together, under the tag 'loss'.

    If model_fn has its own op of this name, TensorFlow calls the curve of the training 'loss_1'.
    """

    def model_fn(features, labels, mode, params):
        weight = tf.compat.v1.get_variable("weight", [])
        loss = tf.reduce_mean(tf.square(weight - features))
        if tag == "loss_1":
            loss = tf.identity(loss, name="loss")
        return harness.minimized(mode, loss, 0.1)

    ones = [[1.0], [1.0]]
    input_fn = harness.input_fn_of([(ones, ones), (ones, ones)])
    run = {"save_summary_steps": 1}
    estimator = harness.estimator(model_fn, None, tmp_path, 2, device, run=run)
    estimator.train(input_fn, hooks=[progress.ProgressHook(2, 2, "loss")], max_steps=2)
    estimator.evaluate(input_fn, steps=1)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("step 2 of 2, mean loss ")
    trained, evaluated = (harness.summaries(tmp_path / name) for name in ("", "eval"))
    assert {"loss", "loss_1"} & {name for of_step in trained.values() for name in of_step} == {tag}
    assert all("loss" in of_step for of_step in evaluated.values())
