"""After a restart, `BestExporter` exports only models that are better than all earlier ones."""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee

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
@pytest.mark.parametrize("has_exports", [True, False])
def test_a_half_record_in_an_event_file_is_named(has_exports, tmp_path, caplog):
    assert run("plain", tmp_path, 2)
    (damaged,) = (tmp_path / "eval").glob("*.tfevents.*")
    with damaged.open("ab") as file:
        file.write(damaged.read_bytes()[:30])
    if not has_exports:
        tf.io.gfile.rmtree(f"{tmp_path}/export")
    assert run("plain", tmp_path, 4) != has_exports  # Step 2 has the best loss.
    said = [one for one in harness.said(caplog) if f"the event file {damaged} is damaged" in one]
    assert len(said) == has_exports


@pytest.mark.slow
def test_uses_compare_fn_and_event_file_pattern(tmp_path):
    def higher(best_eval_result, current_eval_result):
        return current_eval_result["loss"] > best_eval_result["loss"]

    given = {"compare_fn": higher, "event_file_pattern": "eval_valid/*.tfevents.*"}
    exported = [run("plain", tmp_path, steps, "valid", **given) for steps in (4, 6, 7)]
    assert exported == [True, False, True]


@pytest.mark.slow
def test_starts_anew_without_earlier_exports_or_event_files(tmp_path):
    assert run("plain", tmp_path, 2)
    tf.io.gfile.rmtree(f"{tmp_path}/export")
    assert run("plain", tmp_path, 4)
    assert run("plain", tmp_path, 6, event_file_pattern=None)
