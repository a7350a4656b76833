"""An evaluation logs its metrics. A training logs its speed, without pauses of its steps."""

import json
import logging
import time
import types

import documents
import harness
import numpy as np
import pytest
import tensorflow as tf
from saved_values import save

import estimator_emb as ee
from estimator_emb.guards import process
from estimator_emb.guards.call import Runs
from estimator_emb.reporting import progress

v1 = tf.compat.v1


def model_fn(features, labels, mode, params):
    """Returns a model of loss `global step + 0.25`. In an evaluation, metric `ten` is 10 x loss."""
    step = v1.train.get_or_create_global_step()
    loss = tf.cast(step, tf.float32) + 0.25 + 0.0 * tf.reduce_sum(features["id"])
    if mode == ee.ModeKeys.EVAL:

        def metric_fn(x):
            mean = v1.metrics.mean(10.0 * tf.reduce_mean(x))
            histogram = v1.metrics.mean_tensor(tf.reduce_mean(x) * tf.ones([3, 2]))
            half = tf.cast(0.5, tf.bfloat16), tf.no_op()
            summary = tf.constant(b""), tf.no_op()  # A serialized Summary, which no line shows.
            return {"ten": mean, "histogram": histogram, "half": half, "summary": summary}

        rows = loss * tf.ones([2])
        return ee.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, [rows]))
    return ee.TPUEstimatorSpec(mode, loss=loss, train_op=v1.assign_add(step, 1))


def make(model_dir, device=None, **config):
    run = {**harness.SILENT, **config}
    return harness.estimator(model_fn, None, model_dir, 2, device, run=run)


def make_at_step(step, model_dir, device=None):
    """Returns an estimator whose checkpoint is of a step, without training it."""
    save(f"{model_dir}/model.ckpt-{step}", {"global_step": np.int64(step)})
    return make(model_dir, device)


def input_fn(params):
    return harness.dataset([({"id": np.ones(2, np.float32)}, np.zeros(2, np.float32))]).repeat()


@pytest.fixture(autouse=True)
def _informed(caplog):
    caplog.set_level(logging.INFO, "estimator_emb")


@pytest.mark.fast(1)
@pytest.mark.parametrize("device", [None, "host"])
@pytest.mark.parametrize("steps, over", [(1, "1 batch"), (3, "3 batches")])
def test_an_evaluation_logs_its_metrics(steps, over, device, tmp_path, caplog):
    estimator = make_at_step(3, tmp_path, device)
    for name, shown in ((None, "evaluation"), ("a/b", "evaluation 'a/b'")):
        caplog.clear()
        estimator.evaluate(input_fn, steps=steps, name=name)
        line = f"{shown} at step 3: loss 3.25, half 0.5, histogram of shape [3, 2], ten 32.5"
        line += f" (over {over})"
        assert line in caplog.messages, caplog.messages


@pytest.mark.parametrize("device", [None, harness.slow("host")])
def test_metrics_are_shown_once(device, tmp_path, caplog):
    """Programs may parse tensorflow-estimator's line. If it is shown, ours has no metrics."""
    caplog.set_level(logging.INFO, "tensorflow")  # Shows it.
    make_at_step(3, tmp_path, device).evaluate(input_fn, steps=2)
    assert "evaluation at step 3: over 2 batches" in caplog.messages
    (saved,) = [line for line in caplog.messages if "ten = 32.5" in line]
    assert saved.startswith("Saving dict for global step 3: ")
    assert not [line for line in caplog.messages if "ten 32.5" in line]


def test_a_plain_estimator_logs_its_metrics(installed, tmp_path, caplog):
    def plain(features, labels, mode):
        return tf.estimator.EstimatorSpec(mode, loss=1234567.0 + tf.reduce_sum(features))

    save(f"{tmp_path}/model.ckpt-1", {"global_step": np.int64(1)})
    estimator = tf.estimator.Estimator(plain, str(tmp_path))
    estimator.evaluate(lambda: tf.data.Dataset.from_tensors(tf.zeros([2])).repeat(5))
    assert "evaluation at step 1: loss 1.2346e+06 (over 5 batches)" in caplog.messages


def test_a_long_evaluation_logs_its_progress(tmp_path, monkeypatch, caplog):
    """Here a batch takes 5 seconds, and lines are at least 10 seconds apart."""
    now = mocked_clock(monkeypatch)
    slow = harness.AfterStep(lambda: now.__setitem__(0, now[0] + 5.0))
    make(tmp_path).evaluate(input_fn, steps=7, hooks=[slow])
    assert [line for line in caplog.messages if line.startswith("evaluation: ")] == [
        f"evaluation: batch {batch} of 7, 0.2 batches/s" for batch in (2, 4, 6)
    ]


def mocked_clock(monkeypatch):
    """Returns a list with the time in seconds, which tests change."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 10.0)
    monkeypatch.setattr(progress, "_pauses", progress._Pauses())
    return now


def test_the_logged_speed_excludes_evaluations_and_saves(tmp_path, monkeypatch, caplog):
    """Here a step of 2 examples takes 1 second, a save 100 and an evaluation 1,000."""
    now = mocked_clock(monkeypatch)
    monkeypatch.setattr(progress.ProgressLog, "_ended", {})  # Earlier trainings.

    def taking(seconds):
        return [harness.AfterStep(lambda: now.__setitem__(0, now[0] + seconds))]

    save = v1.train.Saver.save

    def slow_save(*args, **kwargs):
        now[0] += 100.0
        return save(*args, **kwargs)

    monkeypatch.setattr(v1.train.Saver, "save", slow_save)
    ee.train_and_evaluate(
        make(tmp_path, save_checkpoints_steps=5),
        ee.TrainSpec(input_fn, max_steps=10, hooks=taking(1.0)),
        ee.EvalSpec(input_fn, steps=1, throttle_secs=0, hooks=taking(1000.0)),
    )
    speeds = [line for line in caplog.messages if line.startswith("step")]
    # The losses are 0.25 to 9.25.
    assert speeds[-1] == "step 10 of 10, mean loss 4.7500, 2 examples/s", caplog.messages
    assert now[0] > 2000  # There were two evaluations, at steps 5 and 10.


@pytest.mark.parametrize(("host", "shows"), [(0, True), (1, False)])
def test_only_host_0_shows_progress_also_if_it_is_no_chief(host, shows):
    """Host 0 shows the progress of all hosts. A worker of a cluster, chief or not, is host 0."""
    train = {"method": "train", "hooks": [], "steps": 1, "max_steps": None, "model_dir": "model"}
    call = types.SimpleNamespace(runs=Runs.LOCAL, host=host, is_chief=False, batch_size=4, **train)
    with process.shown(call) as hooks:  # The hooks that show the progress of the call.
        assert bool(hooks) is shows


def test_the_formatter_of_docs_containers_writes_lines_of_json(tmp_path, capsys):
    """The page's program gives our logger a handler that prints each record as a line of JSON."""
    page = {}
    exec(documents.program_of("docs/containers.md"), page)
    try:
        estimator = make(tmp_path)
        estimator.train(input_fn, max_steps=3)
        estimator.evaluate(input_fn, steps=2, name="late")
    finally:
        page["logger"].removeHandler(page["handler"])
        page["logger"].propagate = True
    *_, trained, evaluated = map(json.loads, capsys.readouterr().out.splitlines())
    assert trained["message"].startswith("step 3 of 3") and trained["step"] == 3
    assert trained["loss"] == (0.25 + 1.25 + 2.25) / 3  # The mean over the steps.
    assert evaluated["evaluation"] == "late" and evaluated["metrics"]["global_step"] == 3
    assert evaluated["metrics"]["histogram"] == [[3.25] * 2] * 3  # Loss 3 + 0.25, shape [3, 2].


def test_progress_is_logged_beside_records_with_a_step_of_the_program(tmp_path, caplog):
    """A logger refuses to overwrite an attribute that a record has already."""
    made = logging.getLogRecordFactory()

    def with_step(*args, **kwargs):
        record = made(*args, **kwargs)
        record.step = record.loss = record.metrics = "of the program"
        return record

    logging.setLogRecordFactory(with_step)
    try:
        make(tmp_path).train(input_fn, max_steps=3)
    finally:
        logging.setLogRecordFactory(made)
    (record,) = (one for one in caplog.records if one.message.startswith("step 3 of 3"))
    assert record.estimator_emb["step"] == 3 and record.step == "of the program"
