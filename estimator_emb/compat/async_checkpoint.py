"""Replaces `tensorflow.python.tpu.async_checkpoint`, a module that TensorFlow 2.16 removed."""

import threading
from typing import Any

import tensorflow as tf

logging = tf.compat.v1.logging


class AsyncCheckpointSaverHook(tf.compat.v1.train.CheckpointSaverHook):
    """A `CheckpointSaverHook` that writes checkpoints in a background thread during training.

    A checkpoint is skipped if the previous checkpoint is still being written. The checkpoint at the
    end of training is always written. The next checkpoint raises any error of the thread.

    Source: the class of that name in tensorflow/python/tpu/async_checkpoint.py, TF 2.15.1.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._written_step: int | None = None

    def end(self, session: Any) -> None:
        self._wait()
        step = session.run(self._global_step_tensor)
        if step != self._written_step:
            super()._save(session, step)
        for listener in self._listeners:
            listener.end(session, step)

    def _save(self, session: Any, step: int) -> bool:
        if self._thread is not None and self._thread.is_alive():
            logging.info("The last checkpoint is still being written: step %d gets none.", step)
            return False
        self._wait()
        self._thread = threading.Thread(target=self._write, args=[session, step])
        self._thread.start()
        return False

    def _write(self, session: Any, step: int) -> None:
        try:
            # A new thread starts in eager mode, so the graph must become its default.
            with session.graph.as_default():
                super()._save(session, step)
            self._written_step = step
        except BaseException as error:
            self._error = error

    def _wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error


__all__ = ["AsyncCheckpointSaverHook"]
