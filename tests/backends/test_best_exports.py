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
"""Loss of an evaluation, by global step: 2 at step 2, 4 at step 4, 1 at step 8."""


def make(kind, model_dir):
    def model(features, labels, mode, spec):
        w = v1.get_variable("w", [])
        if mode == ee.ModeKeys.PREDICT:
            return harness.served(mode, spec, x=w * features["x"])
        step = v1.train.get_global_step()
        loss = tf.gather(LOSSES, step) + 0.0 * w * tf.reduce_sum(features["x"])
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        return spec(mode, loss=loss, train_op=train_op)

    return harness.of_kind(kind, model, model_dir, run=harness.SILENT)


def input_fn(params=None):
    return harness.dataset([({"x": np.ones([4], np.float32)}, np.ones([4], np.float32))]).repeat()


def run(kind, model_dir, steps, name=None, **kwargs):
    """Trains and evaluates with new objects, like a new process. Returns whether it exported."""
    receive = harness.receiver_of(x=(tf.float32, [None]))
    exporter = tf.estimator.BestExporter(serving_input_receiver_fn=receive, **kwargs)
    training = tf.estimator.TrainSpec(input_fn, max_steps=steps)
    evaluation = tf.estimator.EvalSpec(input_fn, steps=1, name=name, exporters=exporter)
    _, (path,) = tf.estimator.train_and_evaluate(make(kind, model_dir), training, evaluation)
    return path is not None


@pytest.mark.slow
@pytest.mark.parametrize("kind, name", [("plain", None), ("plain", "valid"), ("local", None)])
def test_a_restart_exports_only_better_models(kind, name, tmp_path):
    """Stock's BestExporter exports the first model of each process. `name` is of the EvalSpec."""
    exported = [run(kind, tmp_path, steps, name) for steps in (2, 4, 8)]
    assert exported == [True, False, True]  # Losses 2, 4 (worse) and 1.


def record(estimator, loss, name=None):
    """Writes an evaluation's event file that ends with half a record."""
    path = pathlib.Path(estimator.eval_dir(name), f"{loss}.tfevents.1")
    path.parent.mkdir(exist_ok=True)
    summary = v1.Summary(value=[v1.Summary.Value(tag="loss", simple_value=loss)])
    with tf.io.TFRecordWriter(str(path)) as file:
        for event in (v1.Event(wall_time=1.0), v1.Event(summary=summary)):
            file.write(event.SerializeToString())
    path.write_bytes(path.read_bytes() + path.read_bytes()[:20])


def test_best_exporter_compares_with_recorded_evaluations(tmp_path, caplog):
    """The recorded losses are 5, 4 and 6, so 4 is the best. Evaluations named "valid": 2."""
    estimator = tf.estimator.Estimator(lambda features: None, tmp_path)
    estimator.export_saved_model = lambda *args, **kwargs: "exported"
    for loss, name in ((5.0, None), (4.0, None), (6.0, None), (2.0, "valid")):
        record(estimator, loss, name)

    def exports(best, loss):
        return best.export(estimator, str(tmp_path), "ckpt", {"loss": loss}, False) is not None

    def begun(name=None, **kwargs):  # As a new process begins.
        best = tf.estimator.BestExporter("best", lambda: None, **kwargs)
        exporters = [tf.estimator.FinalExporter("final", lambda: None), best]
        spec = tf.estimator.EvalSpec(lambda: None, name=name, exporters=exporters)
        harness.refusal(TypeError, ee.train_and_evaluate, estimator, None, spec)  # Begins first.
        return best, spec

    for name in ("best", "best/temp-17"):  # Neither folder is an export, so the first model is.
        (tmp_path / "export" / name).mkdir(parents=True)
        assert exports(begun()[0], 9.0)
    assert not harness.said(caplog)
    (tmp_path / "export/best/17").mkdir()  # An export: only now do recorded evaluations count.
    assert [exports(begun()[0], loss) for loss in (3.0, 5.0)] == [True, False]
    assert len([one for one in harness.said(caplog) if "is damaged" in one]) == 6  # 2 * 3 files
    assert [exports(begun("valid")[0], loss) for loss in (1.0, 3.0)] == [True, False]
    assert not exports(begun(event_file_pattern="eval_valid/*.tfevents.*")[0], 3.0)
    assert exports(begun(event_file_pattern=None)[0], 9.0)  # The program turns comparing off.
    assert exports(begun(compare_fn=lambda best_eval_result, current_eval_result: True)[0], 9.0)
    best, spec = begun()
    with pytest.raises(AttributeError), best_exports.undone_by_errors(spec):
        no_estimator = types.SimpleNamespace(model_dir=estimator.model_dir)
        best.export(no_estimator, "", "", {"loss": 1.0}, False)
    record(estimator, 2.0)
    best_exports.begin(estimator, spec)
    # Loss 1 is forgotten, because its export failed. The second `begin` in a process reads no file,
    # so it does not know the loss 2.
    assert exports(best, 3.0)
