"""Reports runs of a `TPUEstimator` without input, without steps left, or without a checkpoint."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.messages.console import logger
from estimator_emb.private.estimator import step_of_latest_checkpoint

_PERHAPS = (
    "Perhaps input is empty or misspecified: a file pattern that matches nothing, samples that a "
    "filter() leaves out, or, with drop_remainder=True, fewer samples than a batch."
)


class InputEndedError(tf.errors.OutOfRangeError):
    """Input ended too early for a training or an evaluation.

    A session treats a plain OutOfRangeError as a regular end, so that a failing evaluation inside a
    training would end the training without a message.
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


@contextlib.contextmanager
def training(hooks: Any, needs_input: bool = True) -> Iterator[tf.compat.v1.train.SessionRunHook]:
    """Yields a hook that raises for a training without a step, or warns if it needs no input."""
    steps = _Steps()
    try:
        yield steps
    except tf.errors.OutOfRangeError as error:
        if steps.begun and not steps.any and not isinstance(error, InputEndedError):
            raise _no_step(hooks) from error
        raise
    if steps.begun and not steps.any:
        no_step = _no_step(hooks)
        if needs_input:
            raise no_step
        logger.warning(no_step.message)


class _Steps(tf.compat.v1.train.SessionRunHook):
    def __init__(self) -> None:
        self.begun = self.any = False

    def begin(self) -> None:
        self.begun = True

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.any = True


class Evaluated(_Steps):
    """A hook that raises an error at the end of an evaluation without a batch."""

    def end(self, session: Any) -> None:
        if not self.any:
            raise InputEndedError(
                f"evaluate: input_fn yielded no batch, so there is nothing to evaluate. {_PERHAPS}"
            )


def say_if_reached(model_dir: str, max_steps: Any) -> None:
    """Warns if a training has nothing to do because the model is already at `max_steps`."""
    if max_steps is None:
        return
    step = int(step_of_latest_checkpoint(model_dir))
    if 0 < max_steps <= step:
        logger.warning(
            "train: the model in %s is at step %d, so max_steps=%d is reached: nothing was "
            "trained. max_steps counts the steps of all trainings in a model_dir. Give a larger "
            "max_steps, or steps=... for that many more steps, or another model_dir.",
            model_dir,
            step,
            max_steps,
        )


def say_untrained(call: str, model_dir: str, warm_start: Any) -> None:
    """Warns that an evaluation or a prediction, the `call`, has no checkpoint."""
    begin = f"{call}: Could not find trained model in model_dir: {model_dir}."
    if warm_start:
        logger.warning(
            "%s Only the weights that warm_start_from names come from %s; the others have their "
            "initial values, mostly random.",
            begin,
            warm_start.ckpt_to_initialize_from,
        )
        return
    logger.warning(
        "%s All weights have their initial values, mostly random, and the results mean nothing. "
        "Train first, or give the model_dir of a training, a checkpoint_path or warm_start_from.",
        begin,
    )
