"""Hooks that TensorFlow 2.16 removed: for positions of the input, and asynchronous checkpoints."""

import json
import threading
from contextlib import nullcontext

import harness
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.compat import async_checkpoint
from estimator_emb.legacy import input_checkpoint

tf1 = tf.compat.v1


def test_a_worker_resumes_its_input_no_later_than_the_model(tmp_path, monkeypatch):
    cluster = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
    task = {"type": "worker", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    config = ee.RunConfig(save_checkpoints_steps=3)
    estimator = ee.Estimator(lambda features, labels, mode: None, str(tmp_path), config)
    assert not estimator.config.is_chief
    hook = input_checkpoint.CheckpointInputPipelineHook(estimator)
    read = []

    def run(last_step, first_step=0, end=KeyboardInterrupt):
        """Runs a worker's steps up to an error. The chief has initialised the variables before."""
        with tf.Graph().as_default():
            step = tf1.train.get_or_create_global_step()
            iterator = tf1.data.make_initializable_iterator(tf.data.Dataset.range(100))
            tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
            fetches = [iterator.get_next(), step.assign_add(1)]
            start = step.assign(first_step)
            raised = nullcontext() if end is StopIteration else pytest.raises(end)
            with raised, tf1.train.MonitoredSession(hooks=[hook]) as it:
                it.run_step_fn(lambda step_context: step_context.session.run(start))
                for _ in range(first_step, last_step):
                    read.append(int(it.run(fetches)[0]))
                raise end

    run(8)
    assert read == [*range(8)]
    saved = sorted(path.name for path in tmp_path.glob("*.index"))
    assert saved == [f"input_worker_0.ckpt-{step}.index" for step in (0, 3, 6)]  # By RunConfig.
    assert not [*tmp_path.glob("*.meta")]
    # The whole cluster was killed, and the model is at step 5. Of the positions, 6 is ahead of it.
    run(6, first_step=5)
    assert read[8:] == [3]  # The batch after three steps. A position is saved for step 5.
    (tmp_path / "model.ckpt-5.index").touch()  # So positions of older steps are removed.
    run(8, first_step=6, end=StopIteration)  # The input ends, and its last position is saved.
    run(9, first_step=9, end=StopIteration)  # A session without a step saves no position.
    saved = sorted(path.name for path in tmp_path.glob("input*.index"))
    assert saved == [f"input_worker_0.ckpt-{step}.index" for step in (5, 6, 8)]


class Listener(tf1.train.CheckpointSaverListener):
    def __init__(self):
        self.saved = []
        self.release = threading.Event()
        self.error = None

    def after_save(self, session, global_step_value):
        if threading.current_thread() is not threading.main_thread():
            self.release.wait()
        self.saved.append(global_step_value)
        error, self.error = self.error, None  # The save at the end succeeds.
        if error:
            raise error

    def end(self, session, global_step_value):
        self.saved.append(("end", global_step_value))


def train(model_dir, listener, each_step=lambda number: None):
    with tf.Graph().as_default():
        step = tf1.train.get_or_create_global_step()
        train_op = step.assign_add(1)
        scaffold = tf1.train.Scaffold(saver=tf1.train.Saver())
        hook = async_checkpoint.AsyncCheckpointSaverHook(
            str(model_dir), save_steps=2, scaffold=scaffold, listeners=[listener]
        )
        creator = tf1.train.ChiefSessionCreator(scaffold)
        with tf1.train.MonitoredSession(creator, hooks=[hook]) as session:
            for number in range(1, 6):
                session.run(train_op)
                each_step(number)


def test_async_checkpoints_are_written_during_training(tmp_path, caplog):
    caplog.set_level("INFO", "tensorflow")
    listener = Listener()

    def each_step(number):
        # The checkpoint of step 0 is delayed until step 3, so the checkpoint of step 2 is skipped.
        if number == 3:
            assert listener.saved == []
            listener.release.set()
            while listener.saved != [0]:
                pass

    try:
        train(tmp_path, listener, each_step)
    finally:
        listener.release.set()
    assert "The last checkpoint is still being written: step 2 gets none." in caplog.messages
    assert listener.saved[0] == 0 and listener.saved[-1] == ("end", 5)
    assert listener.saved[-2] == 5 and 2 not in listener.saved
    assert harness.saved(tmp_path, 5) == {"global_step": 5}


def test_an_error_in_an_async_checkpoint_ends_the_training(tmp_path):
    listener = Listener()
    threading.Timer(0.3, listener.release.set).start()  # The thread still saves after step 5.
    listener.error = OSError("the disk is full")
    with pytest.raises(OSError, match="the disk is full"):
        train(tmp_path, listener)
