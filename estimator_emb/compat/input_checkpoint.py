# SPDX-License-Identifier: Apache-2.0
"""`tf.data.experimental.CheckpointInputPipelineHook`, which TensorFlow 2.16 dropped."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.data.experimental.ops import iterator_ops as experimental_iterator_ops
from tensorflow.python.data.ops import iterator_ops


class CheckpointInputPipelineHook(tf.compat.v1.train.SessionRunHook):
    """Saves where the input of an `Estimator` stands, and goes on from there in a later `train`.

    It saves the iterators of the graph as often as the estimator saves its variables, into files of
    their own in the model directory: `input.ckpt-<step>`, with a task's name and number before the
    dot where there are several workers.

    Args:
      estimator: the `Estimator` whose `train` gets this hook.
      external_state_policy: what happens where the input depends on a state that cannot be saved:
        'fail' (None means this), 'warn' or 'ignore'.

    Raises:
      ValueError: another `external_state_policy`, or the estimator saves no checkpoints.

    Source: the class of that name in tensorflow/python/data/experimental/ops/iterator_ops.py,
    TF 2.15.1.
    """

    def __init__(self, estimator: Any, external_state_policy: str | None = None):
        self._policy = experimental_iterator_ops._convert_external_state_policy_to_enum(
            external_state_policy or "fail"
        )
        config = estimator.config
        name = "input"
        if config.num_worker_replicas > 1:
            name += f"_{config.task_type}_{config.task_id}"
        # Not a subclass: an Estimator that is given a CheckpointSaverHook saves no variables.
        self._saver_hook = tf.compat.v1.train.CheckpointSaverHook(
            estimator.model_dir,
            save_secs=config.save_checkpoints_secs,
            save_steps=config.save_checkpoints_steps,
            checkpoint_basename=f"{name}.ckpt",
        )
        self._directory = estimator.model_dir
        self._latest_filename = f"checkpoint_{name}"
        self._restored = False

    def begin(self) -> None:
        iterators = tf.compat.v1.get_collection(iterator_ops.GLOBAL_ITERATORS)
        self._saver_hook._saver = _Saver(
            [
                iterator_ops._IteratorSaveable(one, one.name, external_state_policy=self._policy)
                for one in iterators
            ],
            self._latest_filename,
        )
        self._saver_hook.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        # The estimator's own hook initialises the iterators now, before or after this one.
        self._restored = False

    def before_run(self, run_context: Any) -> Any:
        if not self._restored:
            self._restored = True
            session = run_context.session
            latest = tf.compat.v1.train.latest_checkpoint(self._directory, self._latest_filename)
            if latest:
                self._saver_hook._saver.restore(session, latest)
            else:
                step = session.run(self._saver_hook._global_step_tensor)
                self._saver_hook._save(session, step)
                self._saver_hook._timer.update_last_triggered_step(step)
        return self._saver_hook.before_run(run_context)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._saver_hook.after_run(run_context, run_values)

    def end(self, session: Any) -> None:
        self._saver_hook.end(session)


class _Saver(tf.compat.v1.train.Saver):
    """Notes its latest checkpoint in a file of its own, beside that of the variables."""

    def __init__(self, saveables: Any, latest_filename: str):
        super().__init__(saveables, sharded=True)
        self._latest_filename = latest_filename

    def save(
        self,
        sess: Any,
        save_path: str,
        global_step: Any = None,
        latest_filename: str | None = None,
        **kwargs: Any,
    ) -> Any:
        latest_filename = latest_filename or self._latest_filename
        return super().save(sess, save_path, global_step, latest_filename, **kwargs)
