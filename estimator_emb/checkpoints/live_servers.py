# SPDX-License-Identifier: Apache-2.0
"""A chief that starts again while the parameter servers have gone on without it.

The checkpoint is older than what they hold: restoring it would take back, behind the back of the
workers, every step since. So servers that hold a whole model of the same `model_dir` keep it. Where
one has lost its part, all go back to the checkpoint, and the log says by how many steps.
"""

import logging
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.saver import PartsSaver, arguments

logger = logging.getLogger("estimator_emb")

_MARK = "estimator_emb_model_dir"
"""A variable on the first server, in no collection: the `model_dir` of what the servers hold."""


def saver(config: Any) -> tf.compat.v1.train.Saver:
    """Returns the saver of `saver.saver`, for a chief of parameter servers one that asks them.

    Args:
      config: the `RunConfig`.
    """
    if config.num_ps_replicas and config.is_chief:
        return LiveServersSaver(config.model_dir, **arguments(config))
    return PartsSaver(**arguments(config))


class LiveServersSaver(PartsSaver):
    """Restores a checkpoint unless the parameter servers hold something newer.

    Args:
      model_dir: the program's.
      kwargs: as of `tf.compat.v1.train.Saver`.
    """

    def __init__(self, model_dir: str, **kwargs: Any):
        self._model_dir = model_dir
        super().__init__(**kwargs)

    def build(self) -> None:
        super().build()
        variables = tf.compat.v1.global_variables()
        self._step = tf.compat.v1.train.get_global_step()
        with tf.name_scope("live_servers"), tf.device(None), tf.device("/job:ps/task:0"):
            handle = tf.raw_ops.VarHandleOp(dtype=tf.string, shape=[], shared_name=_MARK)
            self._is_marked = tf.raw_ops.VarIsInitializedOp(resource=handle)
            self._mark = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.string)
            self._set_mark = tf.raw_ops.AssignVariableOp(resource=handle, value=self._model_dir)
        with tf.name_scope("live_servers"):
            self._missing = tf.identity(tf.compat.v1.report_uninitialized_variables(variables))

    def restore(self, sess: Any, save_path: str) -> None:
        live = self._live_step(sess)
        missing = [name.decode() for name in sess.run(self._missing)]
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
        if live is not None and live > saved:
            logger.warning(
                "A parameter server has lost its variables, %s for one: all go back from step %d "
                "to the checkpoint of step %d, and %d steps are lost.",
                sorted(missing)[0],
                live,
                saved,
                live - saved,
            )

    def _live_step(self, sess: Any) -> int | None:
        """Returns the step that the servers hold of this training; None for nothing of it."""
        if not sess.run(self._is_marked) or sess.run(self._mark).decode() != self._model_dir:
            return None
        try:
            return int(sess.run(self._step))
        except tf.errors.FailedPreconditionError:
            return None

    def save(self, sess: Any, *args: Any, **kwargs: Any) -> Any:
        # Also for a model that was never restored: the first checkpoint is that of its beginning.
        sess.run(self._set_mark)
        return super().save(sess, *args, **kwargs)
