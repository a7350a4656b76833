"""Reports trainings and evaluations without input, and trainings that run out of input."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.guards.guard import Call, Guard
from estimator_emb.reporting.console import logger

_PERHAPS = (
    "Perhaps input is empty or misspecified: a file pattern that matches nothing, samples that a "
    "filter() leaves out, or, with drop_remainder=True, fewer samples than a batch."
)


class InputEndedError(tf.errors.OutOfRangeError):
    """Raised if the input of a training or an evaluation ends too early.

    A session treats a plain OutOfRangeError as a normal end. Raised by an evaluation inside a
    training, it would end the training without a message.
    """

    def __init__(self, message: str):
        super().__init__(None, None, message)


def _no_step(hooks: Any) -> InputEndedError:
    message = (
        "train: input_fn yielded no batch: the input ended before the first step, and training "
        f"with estimator made no steps. {_PERHAPS}"
    )
    if any(type(hook).__name__ == "CheckpointInputPipelineHook" for hook in hooks or ()):
        message += (
            " CheckpointInputPipelineHook goes on where the input stood when the model was saved; "
            "if that was its end, nothing is left: repeat() the dataset, or train without the hook."
        )
    return InputEndedError(message)


class InputEnds(Guard):
    """Reports a training or an evaluation that made no step."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.method in ("train", "evaluate")

    @contextlib.contextmanager
    def surround(self) -> Iterator[Any]:
        """Warns if a training made no step. An emulated TPU raises an error, as a TPU does."""
        if self.call.method == "evaluate":
            yield []
            return
        call = self.call
        steps, hooks = _Trained(call.steps, call.max_steps), call.hooks
        try:
            yield [steps]
        except tf.errors.OutOfRangeError as error:
            if steps.begun and not steps.any and not isinstance(error, InputEndedError):
                raise _no_step(hooks) from error
            raise
        if steps.begun and not steps.any:
            no_step = _no_step(hooks)
            if call.on_cores:
                raise no_step
            logger.warning(no_step.message)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[Any]:
        yield [_Evaluated()]


class _Steps(tf.compat.v1.train.SessionRunHook):
    def __init__(self) -> None:
        self.begun = self.any = False

    def begin(self) -> None:
        self.begun = True

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.any = True


class _Trained(_Steps):
    """A hook that logs a line if the input ends before the requested number of steps."""

    def __init__(self, steps: Any, max_steps: Any):
        super().__init__()
        self._steps = steps
        self._max_steps = max_steps
        self._first: int | None = None

    def begin(self) -> None:
        super().begin()
        self._global_step = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._first is None:
            self._first = int(session.run(self._global_step))

    def end(self, session: Any) -> None:
        if not _input_ended(session) or self._first is None:
            return
        last = int(session.run(self._global_step))
        if not self.any:
            self.any = last > self._first  # KMeans counts a step that finds no second batch.
            return
        if self._max_steps is not None and last < self._max_steps:
            asked = f"at step {last:,}, before max_steps={self._max_steps:,}"
        elif self._steps is not None and last - self._first < self._steps:
            asked = f"after {last - self._first:,} of steps={self._steps:,}"
        else:
            return
        advice = "To train on, repeat() its dataset."
        if last == self._first:
            advice = "No step raised the global step, by which steps and max_steps count."
        logger.info("train: the input ended %s. %s", asked, advice)


def _input_ended(session: Any) -> bool:
    """Returns whether an op of the graph ended the session, not a hook's OutOfRangeError."""
    error = sys.exc_info()[1]
    if not isinstance(error, tf.errors.OutOfRangeError) or isinstance(error, InputEndedError):
        return False
    return error.op is not None and error.op.graph is session.graph


class _Evaluated(_Steps):
    """A hook that raises an error if an evaluation ends without a batch."""

    def end(self, session: Any) -> None:
        if not self.any:
            raise InputEndedError(
                f"evaluate: input_fn yielded no batch, so there is nothing to evaluate. {_PERHAPS}"
            )
