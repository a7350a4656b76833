"""`AsyncCheckpointSaverHook` writes in a thread. tests/checkpoints trains with it."""

import threading
from unittest import mock

import processes
import pytest
import tensorflow as tf

from estimator_emb.compat.async_checkpoint import AsyncCheckpointSaverHook


def test_skips_a_checkpoint_during_another_and_waits_at_the_end(tmp_path, caplog):
    caplog.set_level("INFO", "tensorflow")
    goes_on, listener, saver = threading.Event(), mock.Mock(), mock.Mock(saver_def=None)
    saver.save.side_effect = lambda *args, **kwargs: goes_on.wait(processes.HANGS)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = tf.compat.v1.train.get_or_create_global_step()
        session.run(step.initializer)
        hook = AsyncCheckpointSaverHook(
            str(tmp_path), save_steps=1, saver=saver, listeners=[listener]
        )
        hook.begin()
        for _ in range(2):  # Each call saves step 0.
            hook.after_create_session(session, None)
        said = "The last checkpoint is still being written: step 0 gets none."
        assert said in caplog.messages
        threading.Timer(0.05, goes_on.set).start()
        hook.end(session)
        assert goes_on.is_set() and saver.save.call_count == 1
        listener.end.assert_called_once_with(session, 0)
        session.run(step.assign_add(1))
        hook.end(session)
        assert saver.save.call_count == 2
        saver.save.side_effect = OSError("the disk is full")
        hook.after_create_session(session, None)
        hook._thread.join()
        with pytest.raises(OSError, match="the disk is full"):
            hook.after_create_session(session, None)
