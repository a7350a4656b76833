"""An evaluator goes on without a deleted checkpoint, and ends when training has ended."""

import json
import threading

import harness
import numpy as np
import processes
import pytest
import tensorflow as tf

import estimator_emb as ee

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("installed")
RUN = {**harness.SILENT, "save_checkpoints_steps": 2, "keep_checkpoint_max": 1}


def model_fn(features, labels, mode, spec):
    w = v1.get_variable("w", [])
    output = w * features["x"]
    if mode == ee.ModeKeys.PREDICT:
        return harness.served(mode, spec, x=output)
    loss = tf.reduce_mean(tf.square(output - labels))
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
    return spec(mode, loss=loss, train_op=train_op)


def input_of(batches):
    one = ({"x": np.ones([4], np.float32)}, np.ones([4], np.float32))
    return lambda: harness.dataset([one] * batches)


class Cluster:
    """A chief without other trainers, and its evaluator, in this process."""

    def __init__(self, monkeypatch, model_dir):
        self._monkeypatch, self._model_dir = monkeypatch, model_dir
        self._tasks = processes.addresses(chief=1)

    def run(self, job, batches, max_steps, **spec):
        task = {"cluster": self._tasks, "task": {"type": job, "index": 0}}
        self._monkeypatch.setenv("TF_CONFIG", json.dumps(task))
        estimator = harness.of_kind("plain", model_fn, self._model_dir, run=RUN)
        spec = {"input_fn": input_of(1), "start_delay_secs": 0, "throttle_secs": 0} | spec
        training = tf.estimator.TrainSpec(input_of(batches), max_steps=max_steps)
        evaluation = tf.estimator.EvalSpec(steps=1, **spec)
        return tf.estimator.train_and_evaluate(estimator, training, evaluation)


class Calls(ee.Exporter):
    """Calls a function when an evaluation is exported for the first time."""

    name = "calls"

    def __init__(self, function):
        self._function = function
        self.steps = []

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        self.steps.append(int(eval_result["global_step"]))
        if len(self.steps) == 1:
            self._function()


@pytest.mark.fast(1)
@pytest.mark.parametrize("deleted_by", ["export", "input_fn"])
def test_evaluator_goes_on_with_the_newest_checkpoint(deleted_by, tmp_path, monkeypatch, said):
    """During the program's function `deleted_by`, the chief makes step 4, and deletes step 2."""
    cluster = Cluster(monkeypatch, tmp_path)
    cluster.run("chief", batches=2, max_steps=2)
    calls = []

    def train_on():
        calls.append(0)
        thread = threading.Thread(target=cluster.run, args=("chief", 2, 4))  # Steps 3 and 4.
        thread.start()
        thread.join()

    def input_fn():
        if deleted_by == "input_fn" and not calls:
            train_on()
        return input_of(1)()

    first = Calls(train_on if deleted_by == "export" else lambda: None)
    receive = harness.receiver_of(x=(tf.float32, [None]))
    best = ee.BestExporter(serving_input_receiver_fn=receive)
    cluster.run("evaluator", 1, 4, input_fn=input_fn, exporters=[first, best])
    assert first.steps == ([2, 4] if deleted_by == "export" else [4])  # The exported evaluations.
    assert len(list(tmp_path.glob("export/best_exporter/*"))) == 1
    words = "was deleted before its evaluation and exports were complete."
    (line,) = [one for one in said() if words in one]
    assert f"{tmp_path}/model.ckpt-2 {words}" in line
    assert said()[-1] == "Training ended: this evaluator ends."


def test_evaluator_ends_if_training_ended_before_max_steps(tmp_path, monkeypatch, said):
    cluster = Cluster(monkeypatch, tmp_path)
    cluster.run("chief", batches=2, max_steps=9)  # An earlier training's end does not count.
    first = Calls(lambda: cluster.run("chief", batches=4, max_steps=9))
    cluster.run("evaluator", batches=1, max_steps=9, exporters=first)
    assert first.steps == [2, 6]
    expected = "Training ended at step 6, before max_steps=9: this evaluator ends."
    assert said()[-1] == expected


def test_evaluator_fails_if_an_export_fails(tmp_path, monkeypatch):
    cluster = Cluster(monkeypatch, tmp_path)
    cluster.run("chief", batches=6, max_steps=6)

    def fail():
        raise ValueError("of the program")

    with pytest.raises(ValueError, match="of the program"):
        cluster.run("evaluator", batches=1, max_steps=6, exporters=Calls(fail))
