"""A `tf.data.experimental.CheckpointInputPipelineHook` that keeps the input in step with the model.

TensorFlow 2.16 has no such hook. TensorFlow 2.15's hook saves by its own timer. After a restart it
may save at other times than the model's timer. It also restores its newest file, even if the model
is at another step. The hook here saves just before the model is saved, and restores the position at
the model's step. So a training can be killed at any moment. It continues with the batch after the
last batch that its model has seen.
"""

import threading
import weakref
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals import patches
from estimator_emb.compat.internals.estimators import Estimator
from estimator_emb.compat.internals.graphs import (
    GLOBAL_ITERATORS,
    IteratorSaveable,
    StockCheckpointInputPipelineHook,
    external_state_policy_to_enum,
    global_step_read,
)
from estimator_emb.engine import pipelining
from estimator_emb.estimator import TPUEstimator
from estimator_emb.guards.call import Runs
from estimator_emb.legacy.input_positions import Positions
from estimator_emb.reporting.console import logger


class CheckpointInputPipelineHook(tf.compat.v1.train.SessionRunHook):
    """Saves the position of an `Estimator`'s input, so that a later `train` continues there.

    With every checkpoint of the model, it saves the iterators of the graph in the model directory,
    in files `input.ckpt-<step>`. With several workers, the name and number of the task come before
    the dot. The files are removed with the checkpoint of that step.

    Several workers train with their own batches, each at its own pace, and only the chief saves the
    model. The others save their positions by time or by the global step, as the `RunConfig` says,
    and continue from the last position that is not ahead of the model.

    `external_state_policy` says what happens if the input has state that cannot be saved: 'fail'
    (default), 'warn' or 'ignore'.

    Source: the class of that name in tensorflow/python/data/experimental/ops/iterator_ops.py,
    TF 2.15.1.
    """

    def __init__(self, estimator: Any, external_state_policy: str | None = None):
        attach_hooks()
        self._policy = external_state_policy_to_enum(external_state_policy or "fail")
        config = estimator.config
        if not (config.save_checkpoints_secs or config.save_checkpoints_steps):
            raise ValueError(
                "CheckpointInputPipelineHook saves the position of the input with each checkpoint "
                "of the model, but this estimator saves none. Set save_checkpoints_steps or "
                "save_checkpoints_secs in its RunConfig."
            )
        self._every = {
            "every_secs": config.save_checkpoints_secs,
            "every_steps": config.save_checkpoints_steps,
        }
        name = "input"
        if config.num_worker_replicas > 1:
            name += f"_{config.task_type}_{config.task_id}"
        self._saves_model = config.is_chief
        self._positions = Positions(estimator.model_dir, name)
        self._with_model = False
        """Whether a `_BeforeModel` calls this hook at each checkpoint of the model."""

    def begin(self) -> None:
        iterators = tf.compat.v1.get_collection(GLOBAL_ITERATORS)
        if not iterators:
            raise ValueError(
                "No variables to save: CheckpointInputPipelineHook saves the position of tf.data "
                "iterators, and the input of this training has none. Return a tf.data.Dataset from "
                "input_fn, or train without the hook."
            )
        self._step = global_step_read()
        self._positions.build(
            [
                IteratorSaveable(iterator, iterator.name, external_state_policy=self._policy)
                for iterator in iterators
            ],
            pipelining.kept_in_graph(),
        )
        self._timer = tf.compat.v1.train.SecondOrStepTimer(**self._every)
        self._session: Any = None
        """A weak reference to the session in which the input's position fits the model's step."""
        self._model_step: int | None = None
        """Step of a checkpoint written as a session starts, before the input is restored."""
        self._saved_step: int | None = None
        self._in_thread = False

    def before_run(self, run_context: Any) -> None:
        session = run_context.session
        if not self._is_positioned(session):
            # Not in `after_create_session`, because another hook initializes the iterators there.
            self._restore(session)
            self._session = weakref.ref(session)
        if self._in_thread:
            raise ValueError(
                "CheckpointInputPipelineHook: an AsyncCheckpointSaverHook writes the model while "
                "training goes on, so that no position of the input belongs to its checkpoint. "
                "Save with a CheckpointSaverHook, or train without the position of the input."
            )

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if not self._with_model:
            step = run_context.session.run(self._step)
            if self._timer.should_trigger_for_step(step):
                self._save_by_timer(run_context.session, step)

    def end(self, session: Any) -> None:
        if not self._with_model and self._is_positioned(session):
            step = session.run(self._step)
            if step != self._timer.last_triggered_step():
                self._save_by_timer(session, step)

    def before_model_is_saved(self, session: Any, step: int) -> None:
        if threading.current_thread() is not self._thread:
            self._in_thread = True
        elif not self._is_positioned(session):
            self._model_step = step
        elif step != self._saved_step:
            self._save(session, step)

    def after_model_is_saved(self, session: Any, step: int) -> None:
        if not self._in_thread and self._is_positioned(session):
            self._positions.remove_those_without_model(step)

    def attach(self, saver_hooks: list[Any]) -> list[Any]:
        """Makes `saver_hooks` call this hook. If there are no hooks, returns saving listeners."""
        self._thread = threading.current_thread()
        if not self._saves_model:
            return []
        beside = [hook for hook in saver_hooks if self._positions.are_beside(hook._save_path)]
        # Without hooks, the Estimator's own saver calls the listeners that this returns.
        self._with_model = bool(beside) or not saver_hooks
        listener = _BeforeModel(self)
        for hook in beside:
            others = (one for one in hook._listeners if getattr(one, "hook", None) is not self)
            hook._listeners = [listener, *others]
        return [] if saver_hooks else [listener]

    def _is_positioned(self, session: Any) -> bool:
        return self._session is not None and self._session() is session

    def _restore(self, session: Any) -> None:
        step, self._model_step = self._model_step, None
        if step is None:
            step = session.run(self._step)
        steps = self._positions.steps()
        last = max((saved for saved in steps if saved <= step), default=None)
        if last is not None:
            self._positions.restore(session, last)
        if self._with_model and last != step and steps:
            self._explain(step, last, steps)
        if last != step:
            self._save(session, step)
        self._saved_step = step
        self._timer.update_last_triggered_step(step)

    def _explain(self, step: int, last: int | None, steps: list[int]) -> None:
        if last is None:
            text = (
                f"the model is at step {step}, and the positions saved in "
                f"{self._positions.directory} are of later steps ({', '.join(map(str, steps))}): "
                "the input begins at its start."
            )
        else:
            text = (
                f"no position of the input was saved with the model at step {step}. The input goes "
                f"on from {self._positions.path(last)}, where the hook last saved it: what steps "
                f"{last + 1} to {step} have read since may be read again. Train with this hook "
                "each time."
            )
        logger.warning("CheckpointInputPipelineHook: %s", text)

    def _save(self, session: Any, step: int) -> None:
        self._positions.save(session, step)
        self._saved_step = step

    def _save_by_timer(self, session: Any, step: int) -> None:
        self._timer.update_last_triggered_step(step)
        self._save(session, step)
        self._positions.remove_those_before_models()


class _BeforeModel(tf.compat.v1.train.CheckpointSaverListener):
    def __init__(self, hook: CheckpointInputPipelineHook):
        self.hook = hook

    def before_save(self, session: Any, global_step_value: int) -> None:
        self.hook.before_model_is_saved(session, int(global_step_value))

    def after_save(self, session: Any, global_step_value: int) -> None:
        self.hook.after_model_is_saved(session, int(global_step_value))


def attach_hooks() -> None:
    """Makes Estimators attach the input hook to their saver, until the process ends.

    The hook cannot attach itself: it cannot find the other hooks of its session, and programs do
    not also pass it in `saving_listeners`.
    """
    patches.LASTING.wrap(Estimator, "_train_with_estimator_spec", _with_listeners_if_plain)


def _with_listeners_if_plain(train: Any) -> Any:
    watched = _with_listeners(train)

    def train_with_hooks(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (train if isinstance(self, TPUEstimator) else watched)(self, *args, **kwargs)

    return train_with_hooks


def _with_listeners(train: Any) -> Any:
    def with_listeners(
        self: Any,
        estimator_spec: Any,
        worker_hooks: Any,
        hooks: Any,
        global_step_tensor: Any,
        saving_listeners: Any,
    ) -> Any:
        hooks = [_in_place_of_tensorflows(self, hook) for hook in hooks]
        positions = [hook for hook in hooks if isinstance(hook, CheckpointInputPipelineHook)]
        if positions:
            backend = getattr(self, "backend", None)
            if backend is not None and backend.runs is Runs.TPU:
                logger.warning(
                    "CheckpointInputPipelineHook: a TPU's input is read ahead of its steps, so "
                    "after a restart some batches that were read are not trained with."
                )
            of_spec = (*estimator_spec.training_hooks, *estimator_spec.training_chief_hooks)
            savers = [
                hook
                for hook in (*worker_hooks, *hooks, *of_spec)
                if isinstance(hook, tf.compat.v1.train.CheckpointSaverHook)
            ]
            ours = [listener for hook in positions for listener in hook.attach(savers)]
            # Ours come first, because another listener may evaluate for a long time.
            saving_listeners = [*ours, *(saving_listeners or ())]
        return train(
            self, estimator_spec, worker_hooks, hooks, global_step_tensor, saving_listeners
        )

    return with_listeners


def _in_place_of_tensorflows(estimator: Any, hook: Any) -> Any:
    if type(hook) is not StockCheckpointInputPipelineHook:
        return hook
    return CheckpointInputPipelineHook(estimator, hook._external_state_policy)


TPUEstimator._train_with_hooks = _with_listeners(  # type: ignore[method-assign]
    TPUEstimator._train_with_hooks
)
