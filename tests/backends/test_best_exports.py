"""After a restart, `BestExporter` exports only models that are better than all earlier ones."""

import pathlib
import types

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.backends.cluster import best_exports

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")
LOSSES = [9.0, 9, 2, 9, 4, 9, 3, 9, 1]
"""Loss of an evaluation, by global step."""


def make(kind, model_dir):
    def model(features, labels, mode, spec):
        w = v1.get_variable("w", [])
        if mode == ee.ModeKeys.PREDICT:
            outputs = {"x": w * features["x"]}
            served = {"serving_default": tf.estimator.export.PredictOutput(outputs)}
            return spec(mode, predictions=outputs, export_outputs=served)
        step = v1.train.get_global_step()
        loss = tf.gather(LOSSES, step) + 0.0 * w * tf.reduce_sum(features["x"])
        if mode == ee.ModeKeys.EVAL:
            return spec(mode, loss=loss)
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        return spec(mode, loss=loss, train_op=train_op)

    return harness.of_kind(kind, model, model_dir, run=harness.SILENT)


def input_fn(params=None):
    return harness.dataset([({"x": np.ones([4], np.float32)}, np.ones([4], np.float32))]).repeat()


def run(kind, model_dir, steps, name=None, **kwargs):
    """Trains and evaluates with new objects, like a new process. Returns whether it exported."""
    receive = harness.receiver_of(x=(tf.float32, [None]))
    exporter = tf.estimator.BestExporter(serving_input_receiver_fn=receive, **kwargs)
    _, (path,) = tf.estimator.train_and_evaluate(
        make(kind, model_dir),
        tf.estimator.TrainSpec(input_fn, max_steps=steps),
        tf.estimator.EvalSpec(input_fn, steps=1, name=name, exporters=exporter),
    )
    return path is not None


@pytest.mark.slow
@pytest.mark.parametrize("kind, name", [("plain", None), ("plain", "valid"), ("local", None)])
def test_a_restart_exports_only_better_models(kind, name, tmp_path):
    exported = [run(kind, tmp_path, steps, name) for steps in (2, 4, 8)]
    assert exported == [True, False, True]


@pytest.mark.slow
def test_uses_compare_fn_and_event_file_pattern(tmp_path):
    def higher(best_eval_result, current_eval_result):
        return current_eval_result["loss"] > best_eval_result["loss"]

    given = {"compare_fn": higher, "event_file_pattern": "eval_valid/*.tfevents.*"}
    exported = [run("plain", tmp_path, steps, "valid", **given) for steps in (4, 6, 7)]
    assert exported == [True, False, True]


class Evaluated:
    """An estimator with recorded evaluations that only pretends to export."""

    def __init__(self, model_dir):
        self.model_dir = model_dir

    def eval_dir(self, name=None):
        return f"{self.model_dir}/{f'eval_{name}' if name else 'eval'}"

    def export_saved_model(self, *args, **kwargs):
        return "exported"

    def record(self, loss, name=None):
        """Writes an event file that ends with half a record."""
        path = pathlib.Path(self.eval_dir(name), f"{loss}.tfevents.1")
        path.parent.mkdir(exist_ok=True)
        summary = v1.Summary(value=[v1.Summary.Value(tag="loss", simple_value=loss)])
        with tf.io.TFRecordWriter(str(path)) as file:
            for event in (v1.Event(wall_time=1.0), v1.Event(summary=summary)):
                file.write(event.SerializeToString())
        path.write_bytes(path.read_bytes() + path.read_bytes()[:20])


def begun(estimator, name=None, **kwargs):
    best = tf.estimator.BestExporter("best", lambda: None, **kwargs)
    exporters = [tf.estimator.FinalExporter("final", lambda: None), best]
    spec = types.SimpleNamespace(name=name, exporters=exporters)
    best_exports.begin(estimator, spec)
    return best, spec


def exports(best, estimator, loss):
    export_path = str(estimator.model_dir)
    return best.export(estimator, export_path, "checkpoint", {"loss": loss}, False) is not None


def test_compares_with_recorded_evaluations(tmp_path, caplog):
    estimator = Evaluated(tmp_path)
    for loss, name in ((5.0, None), (4.0, None), (6.0, None), (2.0, "valid")):
        estimator.record(loss, name)

    def better(loss, *name, **given):
        return exports(begun(estimator, *name, **given)[0], estimator, loss)

    for name in ("best", "best/temp-17"):  # Neither folder is an export.
        (tmp_path / "export" / name).mkdir(parents=True)
        assert better(9.0)
    assert not harness.said(caplog)
    (tmp_path / "export/best/17").mkdir()
    assert [better(3.0), better(5.0)] == [True, False]
    assert len([one for one in harness.said(caplog) if "is damaged" in one]) == 6
    assert [better(1.0, "valid"), better(3.0, "valid")] == [True, False]
    assert not better(3.0, event_file_pattern="eval_valid/*.tfevents.*")
    assert better(9.0, event_file_pattern=None)


def test_forgets_an_evaluation_whose_export_failed(tmp_path):
    estimator = Evaluated(tmp_path)
    estimator.record(4.0)
    (tmp_path / "export/best/17").mkdir(parents=True)
    best, spec = begun(estimator)
    with pytest.raises(AttributeError), best_exports.undone_by_errors(spec):
        exports(best, types.SimpleNamespace(model_dir=tmp_path), 1.0)
    estimator.record(2.0)  # As an evaluation of this process does.
    best_exports.begin(estimator, spec)
    assert exports(best, estimator, 3.0)
