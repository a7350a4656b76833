"""Checks the value of input_fn, and reports inputs that are empty or end early."""

import contextlib
import inspect
import re
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.compat.internals import patches
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.compat.internals.graphs import fn_args
from estimator_emb.guards.call import Call, Runs
from estimator_emb.guards.checks import batch_names
from estimator_emb.guards.checks.program_checks import DATASETS
from estimator_emb.guards.events import Event, Facts, on
from estimator_emb.reporting import frames
from estimator_emb.reporting.console import logger

_MUST = "must return a Dataset, or features and labels"
_PERHAPS = (
    "Perhaps input is empty or misspecified: a file pattern that matches nothing, samples that a "
    "filter() leaves out, or, with drop_remainder=True, fewer samples than a batch."
)
_CARDINALITY = ("cardinality of datasets",)
"""Collection of the number of batches of an evaluation's datasets.

Its key is not a string, so it is never exported.
"""
_MINUTE = 60.0
_SHAPES = re.compile(r"[(\[](None|\d+),( ?(None|\d+),?)*[)\]]|<TensorShape.*?>")
"""Matches shapes in a message. A None in a shape is not a missing value."""


class InputEndedError(tf.errors.OutOfRangeError):
    """Raised if the input of a training or an evaluation ends too early.

    A session treats a plain OutOfRangeError as a normal end. Raised by an evaluation inside a
    training, it would end the training without a message.
    """

    def __init__(self, message: str):
        super().__init__(None, None, message)


@on(Event.INPUT_RETURNED, when=lambda call: call.in_session)
def input_values(call: Call, owner: str, value: Any) -> None:
    """Raises an error if input_fn returns neither a Dataset nor features and labels."""
    if hasattr(value, "get_next"):
        raise TypeError(
            f"{owner} {_MUST}; it returned an iterator, {type(value).__name__}. Return the "
            "Dataset, or what get_next() returns."
        )
    endless = call.method == "evaluate" and call.steps is None and not call.hooks
    if endless and isinstance(value, DATASETS):
        graph = tf.compat.v1.get_default_graph()
        graph.add_to_collection(_CARDINALITY, tf.data.experimental.cardinality(value))
    if call.ours:  # A plain Estimator's model_fn may ignore what input_fn returns.
        _check(owner, value, call.has_spec, call.on_cores)


def _check(owner: str, returned: Any, needs_dict: bool, on_cores: bool) -> None:
    must = f"{owner} {_MUST}"
    if returned is None:
        raise ValueError(f"{must}; it returned None. Is its `return` missing?")
    structure = returned
    if isinstance(returned, DATASETS):
        structure = returned.element_spec
    elif inspect.isgenerator(returned) or isinstance(returned, (str, bytes)):
        raise TypeError(
            f"{must}; it returned a {type(returned).__name__}. For Python's values, see "
            "tf.data.Dataset.from_generator."
        )
    features, labels = structure, None
    if isinstance(structure, (tuple, list)):
        if len(structure) != 2 and not hasattr(structure, "_fields"):
            raise ValueError(
                f"{owner}: input_fn should return (features, labels) as a len 2 tuple; got "
                f"{len(structure)} parts."
            )
        if len(structure) == 2:
            features, labels = structure
    if needs_dict and not isinstance(features, Mapping):
        swapped = " Are features and labels swapped?" if isinstance(labels, Mapping) else ""
        raise ValueError(
            "With an EmbeddingConfigSpec, input_fn must return its features as a dict; "
            f"{owner} returned {_kind(features)}.{swapped}"
        )
    if on_cores and not isinstance(returned, DATASETS):
        leaves = tf.nest.flatten(returned)
        if any(isinstance(leaf, (np.ndarray, np.generic, int, float)) for leaf in leaves):
            raise TypeError(
                f"{owner} returned NumPy arrays or numbers, which cannot be divided over the cores "
                "of a TPU; return tensors, or a Dataset."
            )


def _kind(value: Any) -> str:
    if tf.is_tensor(value) or isinstance(value, tf.TypeSpec):
        return "a tensor"
    return f"a {type(value).__name__}"


def with_late_reads(call: Call, value: Any) -> Any:
    """Returns input_fn's value. Predictions read no batch ahead unless the program asks for it.

    tf.data adds a prefetch to the end of an input. A generator that waits for a question would then
    be asked for the next question before the current answer is out. An emulated TPU reads ahead, as
    a TPU does.
    """
    late = call.method == "predict" and call.runs in (Runs.PLAIN, Runs.LOCAL)
    if not late or not isinstance(value, DATASETS):
        return value
    # In a graph, TensorFlow warns that a dataset made elsewhere may have other options.
    with patches.without_warnings():
        asked = value.options().experimental_optimization.inject_prefetch
    if asked is not None:
        return value
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return value.with_options(options)


@on(Event.CALL, when=lambda call: call.method == "train")
@contextlib.contextmanager
def empty_training(call: Call) -> Iterator[list[Any]]:
    """Warns if a training made no step. An emulated TPU raises an error, as a TPU does."""
    steps = _Trained(call)
    try:
        yield [steps]
    except tf.errors.OutOfRangeError as error:
        if steps.begun and not steps.any and not isinstance(error, InputEndedError):
            raise _no_step(call.hooks) from error
        raise
    if steps.begun and not steps.any:
        no_step = _no_step(call.hooks)
        if call.on_cores:
            raise no_step
        logger.warning(no_step.message)


@on(Event.EVALUATION, when=lambda call: call.method in ("train", "evaluate"))
def evaluated_batches(call: Call) -> list[Any]:
    """Raises an error if an evaluation has no batch, and warns if its batches never end."""
    return [_Evaluated()]


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


class _Steps(tf.compat.v1.train.SessionRunHook):
    def __init__(self) -> None:
        self.begun = self.any = False

    def begin(self) -> None:
        self.begun = True

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.any = True


class _Trained(_Steps):
    """A hook that logs a line if the input ends before the requested number of steps."""

    def __init__(self, call: Call):
        super().__init__()
        self._call = call
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
        steps, max_steps = self._call.steps, self._call.max_steps
        if max_steps is not None and last < max_steps:
            asked = f"at step {last:,}, before max_steps={max_steps:,}"
        elif steps is not None and last - self._first < steps:
            asked = f"after {last - self._first:,} of steps={steps:,}"
        else:
            return
        advice = "To train on, repeat() its dataset."
        if last == self._first:
            advice = "No step raised the global step, by which steps and max_steps count."
        elif self._call.on_cores:
            return  # The error of an emulated TPU says it.
        logger.info("train: the input ended %s. %s", asked, advice)


def _input_ended(session: Any) -> bool:
    """Returns whether an op of the graph ended the session, not a hook's OutOfRangeError."""
    error = sys.exc_info()[1]
    op = error.op if isinstance(error, tf.errors.OutOfRangeError) else None
    return op is not None and op.graph is session.graph


class _Evaluated(_Steps):
    """A hook that raises an error if an evaluation ends without a batch.

    After a minute, it warns if the dataset repeats without end.
    """

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._cardinality = session.graph.get_collection(_CARDINALITY)
        self._ends_at = time.monotonic() + _MINUTE

    def after_run(self, run_context: Any, run_values: Any) -> None:
        super().after_run(run_context, run_values)
        if self._cardinality and time.monotonic() > self._ends_at:
            sizes, self._cardinality = run_context.session.run(self._cardinality), []
            if tf.data.experimental.INFINITE_CARDINALITY in sizes:
                logger.warning(
                    "evaluate: steps=None, and the input repeats: this evaluation never ends. Give "
                    "steps, or leave out repeat() of the dataset."
                )

    def end(self, session: Any) -> None:
        if not self.any:
            raise InputEndedError(
                f"evaluate: input_fn yielded no batch, so there is nothing to evaluate. {_PERHAPS}"
            )


@on(Event.MODEL_RUNS, when=lambda call: call.ours)
def sample_counts(facts: Facts) -> contextlib.AbstractContextManager[Any]:
    """Explains errors that occur when features and labels differ in their number of samples."""
    assert facts.batch is not None
    return batch_names.compared(facts.batch.features, facts.batch.labels, facts.batch.samples)


@on(Event.MODEL_FAILED, when=lambda call: call.in_session)
def missing_labels(facts: Facts, error: Exception) -> None:
    """Explains an error about None that occurs because model_fn is given no labels."""
    assert facts.batch is not None
    if "labels" not in fn_args(facts.call.model_fn):
        return  # The error is of another None.
    kinds = (AttributeError, TypeError, ValueError)
    is_of_none = isinstance(error, kinds) and "None" in _SHAPES.sub("", str(error))
    if facts.batch.labels is not None or facts.batch.features is None or not is_of_none:
        return
    remedy = "for input_fn returned only features: return a Dataset of (features, labels), or both."
    if facts.call.mode == ModeKeys.PREDICT:
        frame = frames.innermost(traceback.extract_tb(error.__traceback__))
        if frame is None or "label" not in (frame.line or ""):
            return
        remedy = "as for every prediction and export: return its EstimatorSpec before the loss."
    error.args = (
        f"{str(error).rstrip('.')}. In model_fn, labels is None in mode {facts.call.mode!r}, "
        f"{remedy}",
    )
