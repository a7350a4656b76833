"""What is said and written if a folder was removed, or has a checkpoint already."""

import shutil

import harness
import pytest
import tensorflow as tf

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")
KINDS = ["plain", pytest.param("local", marks=pytest.mark.slow)]


def make(kind, folder, **kwargs):
    def model(features, labels, mode, spec):
        loss = tf.reduce_sum(v1.layers.dense(features, 1, name="out"))
        optimizer = v1.train.GradientDescentOptimizer(0.1)
        step = optimizer.minimize(loss, v1.train.get_global_step())
        return spec(mode, loss=loss, train_op=step)

    return harness.of_kind(kind, model, folder, run={"save_summary_steps": 1}, **kwargs)


def input_fn(params=None):
    return tf.data.Dataset.from_tensors((tf.ones([4, 2]), tf.ones([4, 1]))).repeat()


@pytest.mark.parametrize("kind", KINDS)
def test_a_removed_folder_gets_event_files_again(kind, tmp_path):
    folder = tmp_path / "model"
    for _ in range(2):
        estimator = make(kind, folder)
        estimator.train(input_fn, steps=1)
        estimator.evaluate(input_fn, steps=1)
        tags = {}
        for where in (folder, folder / "eval"):
            (file,) = where.glob("events.out.tfevents.*")
            events = v1.train.summary_iterator(str(file))
            tags[where.name] = {value.tag for event in events for value in event.summary.value}
        assert "loss" in tags["eval"] & tags["model"]
        shutil.rmtree(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_start_that_is_not_used_is_said_once(kind, tmp_path, caplog):
    caplog.set_level("INFO", "estimator_emb")
    make(kind, tmp_path / "old").train(input_fn, max_steps=1)

    def said(folder):
        caplog.clear()
        estimator = make(kind, tmp_path / folder, warm_start_from=str(tmp_path / "old"))
        for last in (2, 3):
            estimator.train(input_fn, max_steps=last)
        return [line for line in harness.said(caplog) if "warm_start_from" in line]

    assert said("new") == []
    (line,) = said("old")
    assert line.endswith("For a warm start, give another model_dir.")
