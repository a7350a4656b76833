"""`AsyncCheckpointSaverHook` writes in a thread. tests/checkpoints trains with it."""

import threading
from unittest import mock

import processes
import pytest
import tensorflow as tf

from estimator_emb.compat.async_checkpoint import AsyncCheckpointSaverHook


class Saver:
    """Records each step that it saves, as soon as the test sets `goes_on`."""

    saver_def = None

    def __init__(self):
        self.steps, self.goes_on = [], threading.Event()

    def save(self, session, path, global_step, **kwargs):
        assert self.goes_on.wait(processes.HANGS)
        self.steps.append(global_step)


def test_skips_a_checkpoint_during_another_and_waits_at_the_end(tmp_path, caplog):
    caplog.set_level("INFO", "tensorflow")
    saver, listener = Saver(), mock.Mock()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.train.get_or_create_global_step().initializer)
        given = {"save_steps": 1, "saver": saver, "listeners": [listener]}
        hook = AsyncCheckpointSaverHook(str(tmp_path), **given)
        hook.begin()
        for _ in range(2):  # Each call saves step 0.
            hook.after_create_session(session, None)
        said = "The last checkpoint is still being written: step 0 gets none."
        assert said in caplog.messages and not saver.steps
        threading.Timer(0.05, saver.goes_on.set).start()
        hook.end(session)
        assert saver.steps == [0]
        listener.end.assert_called_once_with(session, 0)
        saver.save = mock.Mock(side_effect=OSError("the disk is full"))
        hook.after_create_session(session, None)
        with pytest.raises(OSError, match="the disk is full"):
            hook.end(session)
