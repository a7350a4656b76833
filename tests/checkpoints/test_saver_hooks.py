"""Several hooks of a training save into the same model directory, but only one at a time."""

import importlib.util
import time

import pytest
import tensorflow as tf
from words_program import input_fn, make

from estimator_emb.checkpoints.files import checkpoint_files
from estimator_emb.compat import async_checkpoint

tf1 = tf.compat.v1

ASYNC = [async_checkpoint.AsyncCheckpointSaverHook]
if importlib.util.find_spec("tensorflow.python.tpu.async_checkpoint"):
    module = importlib.import_module("tensorflow.python.tpu.async_checkpoint")
    ASYNC.append(module.AsyncCheckpointSaverHook)


@pytest.fixture
def writing(monkeypatch):
    """Returns a list: the number of concurrent saves at the start of each save."""
    now, counts, write = [], [], tf1.train.Saver.save

    def save(*args, **kwargs):
        now.append(None)
        counts.append(len(now))
        try:
            time.sleep(0.05)
            return write(*args, **kwargs)
        finally:
            now.pop()

    monkeypatch.setattr(tf1.train.Saver, "save", save)
    return counts


@pytest.mark.fast(1)
@pytest.mark.parametrize("kind", ASYNC, ids=lambda kind: kind.__module__.split(".")[0])
@pytest.mark.parametrize(
    "way, others",
    [
        # The TPU's estimator also saves with its own hook.
        pytest.param("emulated", [tf1.train.CheckpointSaverHook], marks=pytest.mark.slow),
        ("host", [tf1.train.CheckpointSaverHook, "async"]),
    ],
)
def test_hooks_save_one_at_a_time(way, others, kind, writing, tmp_path):
    def hooks():
        # In both orders, because hooks end in the order in which they are listed.
        kinds = [kind, *(kind if other == "async" else other for other in others)]
        for ordered in (kinds, kinds[::-1]):
            yield [one(str(tmp_path), save_steps=1) for one in ordered]

    for number, saving in enumerate(hooks(), 1):
        estimator = make(tmp_path, way)
        estimator.train(lambda params: input_fn(params).repeat(), hooks=saving, steps=3)
        assert estimator.latest_checkpoint() == f"{tmp_path}/model.ckpt-{3 * number}"
        assert estimator.get_variable_value("global_step") == 3 * number
    assert len(writing) > 4
    assert set(writing) == {1}
    assert not list(tmp_path.glob("*_temp"))


@pytest.mark.parametrize("kind", ASYNC, ids=lambda kind: kind.__module__.split(".")[0])
def test_a_single_async_hook_saves_each_step(kind, writing, tmp_path):
    """In TensorFlow 2 programs, TensorFlow 2.15's hook too writes during training, not after."""

    class Wait(tf1.train.SessionRunHook):
        def before_run(self, run_context):
            threads = vars(async_hook)
            (threads.get("_thread") or threads.get("_save_thread")).join()

        def after_run(self, run_context, run_values):
            self.before_run(run_context)

    async_hook = kind(str(tmp_path), save_steps=1)
    estimator = make(tmp_path)
    hooks = [async_hook, Wait()]
    estimator.train(lambda params: input_fn(params).repeat(), hooks=hooks, steps=3)
    assert checkpoint_files.checkpoints(str(tmp_path)) == [f"model.ckpt-{n}" for n in range(4)]
    assert set(writing) == {1}
