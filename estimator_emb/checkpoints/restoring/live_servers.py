"""Keeps the variables of parameter servers when the chief of a cluster restarts.

The checkpoint that a new chief finds is older than the variables of the servers. Restoring it would
silently lose every step since then. So servers that hold a whole model of the same `model_dir` keep
it. If a server has lost its part, all servers go back to the checkpoint, and the logs of the
trainers say how many steps are lost.
"""

import os
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.restoring.saver import PartsSaver
from estimator_emb.reporting.console import logger

_MARK = "estimator_emb_model_dir"
"""Name of a variable on the first server. It stores the `model_dir` of the servers' model."""


class StepsSeen(tf.compat.v1.train.SessionRunHook):
    """Warns about lost steps, after a session lost a server and restarted with the same hooks."""

    def __init__(self) -> None:
        self.last: int | None = None

    def begin(self) -> None:
        self._step = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        step = int(session.run(self._step))
        if self.last is not None and step < self.last:
            logger.warning(
                "Training goes on from step %d, after a parameter server was away: the %d steps "
                "that followed, up to step %d, are lost.",
                step,
                self.last - step,
                self.last,
            )
        self.last = None

    def before_run(self, run_context: Any) -> Any:
        return tf.compat.v1.train.SessionRunArgs(self._step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.last = int(run_values.results) + 1  # A step's reads come before its writes.


class LiveServersSaver(PartsSaver):
    """A saver that restores a checkpoint unless the parameter servers hold a newer model."""

    _set_mark: tf.Operation | None = None

    def __init__(self, config: Any, seen: StepsSeen):
        path = config.model_dir  # Programs on this machine must get the same spelling.
        self._model_dir = path.rstrip("/") if "://" in path else os.path.realpath(path)
        self._seen = seen
        super().__init__(config)

    def build(self) -> None:
        super().build()
        if self._set_mark is not None:
            return  # A session that restarts after a lost server calls `build` again.
        variables = tf.compat.v1.global_variables()
        self._step = tf.compat.v1.train.get_global_step()
        with tf.name_scope("live_servers"), tf.device(None), tf.device("/job:ps/task:0"):
            handle = tf.raw_ops.VarHandleOp(dtype=tf.string, shape=[], shared_name=_MARK)
            self._is_marked = tf.raw_ops.VarIsInitializedOp(resource=handle)
            self._mark = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.string)
            self._set_mark = tf.raw_ops.AssignVariableOp(resource=handle, value=self._model_dir)
        self._count = len(variables)
        with tf.name_scope("live_servers"):
            self._missing = tf.identity(tf.compat.v1.report_uninitialized_variables(variables))

    def restore(self, sess: Any, save_path: str) -> None:
        missing = [name.decode() for name in sess.run(self._missing)]
        mark = sess.run(self._mark).decode() if sess.run(self._is_marked) else None
        live = self._held_step(sess) if mark == self._model_dir else None
        saved = tf.train.load_checkpoint(save_path).get_tensor(self._step.op.name)
        if live is not None and not missing and live >= saved:
            if live > saved:
                logger.info(
                    "The parameter servers hold step %d: training goes on from there, not from "
                    "the checkpoint of step %d.",
                    live,
                    saved,
                )
            return
        super().restore(sess, save_path)
        sess.run(self._set_mark)
        if not missing:
            return  # The servers held another training.
        held_some = self._seen.last is not None or len(missing) < self._count
        if mark == self._model_dir or (mark is None and held_some):
            self._tell(sorted(missing)[0], live, int(saved))
        elif saved:
            logger.info(
                "The parameter servers hold nothing of this training: it goes on from the "
                "checkpoint of step %d.",
                saved,
            )

    def _tell(self, lost: str, live: int | None, saved: int) -> None:
        last = live if live is not None else self._seen.last
        self._seen.last = None
        if last is not None and last <= saved:
            return
        logger.warning(
            "A parameter server has lost its variables, %s for one: all servers go back%s to the "
            "checkpoint of step %d%s.",
            lost,
            "" if last is None else f" from step {last}",
            saved,
            "" if last is None else f", and {last - saved} steps are lost",
        )

    def _held_step(self, sess: Any) -> int | None:
        try:
            return int(sess.run(self._step))
        except tf.errors.FailedPreconditionError:
            return None

    def save(self, sess: Any, *args: Any, **kwargs: Any) -> Any:
        # A new model is not restored. It gets its mark when it saves its initial values.
        sess.run(self._set_mark)
        return super().save(sess, *args, **kwargs)
