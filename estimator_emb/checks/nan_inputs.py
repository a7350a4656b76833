# SPDX-License-Identifier: Apache-2.0
"""Names the features and labels that make the loss of a step NaN or infinite.

`note` records what model_fn gets; `checked` looks at it, and at the shapes of the loss.

Only a step whose loss is not finite looks at them, so that a model may mask missing values that
are NaN, and other steps pay nothing. Such a training step ends before it writes anything; an
evaluation, which changes nothing, logs a warning.
"""

import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.checks import batch_sizes, spread_labels
from estimator_emb.checks.nan_loss import NanInputError
from estimator_emb.ordering import after_checks
from estimator_emb.private.estimator import ModeKeys

logger = logging.getLogger("estimator_emb")

_REMEDY = (
    "Correct the data, or fill in what is missing before the model computes with it: a tf.where "
    "around a result keeps NaN out of the loss, but not out of the gradients."
)


class _Inputs:
    """The inputs of the model in a graph.

    Attributes:
      features, labels: names of the tensors.
      parts: name of a floating input -> its numbers, and where they are if it is sparse or ragged.
      losses: the loss of each core; empty for that of the EstimatorSpec.
      error: what ended the step.
    """

    def __init__(self) -> None:
        self.features: set[str] = set()
        self.labels: set[str] = set()
        self.parts: dict[str, list[tf.Tensor]] = {}
        self.losses: Sequence[tf.Tensor] = ()
        self.error: NanInputError | None = None


_of_graphs: weakref.WeakKeyDictionary[tf.Graph, _Inputs] = weakref.WeakKeyDictionary()


def note(
    features: Any, labels: Any, of_cores: Callable[[tf.Tensor], list[Any]] | None = None
) -> None:
    """Records what model_fn gets in the default graph; `of_cores` returns each core's tensor."""
    notes = _of_graphs.setdefault(tf.compat.v1.get_default_graph(), _Inputs())
    notes.features, notes.labels = _tensors(features), _tensors(labels)
    for name, value in batch_sizes.named({"features": features, "labels": labels}):
        if not tf.is_tensor(value) or not value.dtype.is_floating:
            continue
        if isinstance(value, tf.Tensor):
            values = of_cores(value) if of_cores else [value]
            for core, one in enumerate(values):
                notes.parts[f"{name} of core {core}" if len(values) > 1 else name] = [one]
        elif isinstance(value, tf.SparseTensor):
            notes.parts[name] = [value.values, value.indices]
        elif isinstance(value, tf.RaggedTensor):
            notes.parts[name] = [value.flat_values, *value.nested_row_splits]


def _tensors(structure: Any) -> set[str]:
    return {value.name for _, value in batch_sizes.named(structure) if isinstance(value, tf.Tensor)}


def note_losses(losses: Sequence[tf.Tensor]) -> None:
    """Records the loss of each core."""
    _of_graphs.setdefault(tf.compat.v1.get_default_graph(), _Inputs()).losses = losses


def checked(spec: Any) -> Any:
    """Returns an `EstimatorSpec` whose steps look at the noted inputs if the loss is not finite."""
    notes = _of_graphs.get(tf.compat.v1.get_default_graph())
    step = tf.compat.v1.train.get_global_step()
    if notes is None or spec.loss is None or step is None:
        return spec
    losses = list(notes.losses or [spec.loss])
    spread_labels.warn(losses[0], notes.features, notes.labels)
    if not notes.parts:
        return spec
    training = spec.mode == ModeKeys.TRAIN
    names = list(notes.parts)
    sizes = [len(parts) for parts in notes.parts.values()]

    def look(step: Any, *values: Any) -> np.bool_:
        rest = iter(values)
        of_cores = np.array([next(rest) for _ in losses], np.float64)
        parts = [[next(rest) for _ in range(size)] for size in sizes]
        kind = "NaN" if np.isnan(of_cores).any() else "Infinite"
        # Only an infinite number makes an infinite loss.
        holds = np.isinf if kind == "Infinite" else lambda value: ~np.isfinite(value)
        lines = [
            line for name, of in zip(names, parts, strict=True) for line in _lines(name, of, holds)
        ]
        if lines and training:
            begin = f"{kind} loss during training: step {step + 1} wrote nothing, for its batch has"
            notes.error = NanInputError([*lines, _REMEDY], begin)
            raise ValueError(str(notes.error))
        if lines and notes.error is None:
            begin = f"{kind} loss in an evaluation after step {step}: a batch has"
            notes.error = NanInputError([*lines, _REMEDY], begin)
            logger.warning("%s", notes.error)
        return np.bool_(True)

    with tf.name_scope("check_inputs"), tf.device("/cpu:0"):
        given = [tf.identity(step), *losses, *(one for of in notes.parts.values() for one in of)]
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(loss)) for loss in losses])
        good = tf.cond(
            finite, lambda: tf.constant(True), lambda: tf.numpy_function(look, given, tf.bool)
        )
    updates = [update for _, update in (spec.eval_metric_ops or {}).values()]
    after_checks.wait([spec.train_op, spec.loss, *updates], good)
    if training:
        return spec
    with tf.control_dependencies([good]):
        return spec._replace(loss=tf.identity(spec.loss))


def _lines(name: str, parts: list[Any], holds: Callable[[Any], Any]) -> list[str]:
    values, *places = parts
    bad = np.argwhere(holds(values))
    if not len(bad):
        return []
    place = list(bad[0])
    value = values[tuple(place)]
    if len(places) == 1 and places[0].ndim == 2:  # A SparseTensor.
        place = list(places[0][place[0]])
    else:
        for splits in reversed(places):
            row = int(np.searchsorted(splits, place[0], side="right")) - 1
            place = [row, place[0] - splits[row], *place[1:]]
    at = ", ".join(str(int(index)) for index in place)
    sample = f"sample {int(place[0])}, " if place else ""
    return [f"{name}: {value} in {sample}at [{at}], and {len(bad)} such of {values.size:,} numbers"]


def of_failed_step(graph: Any) -> NanInputError | None:
    """Returns the error that ended a step of a graph, if its inputs did."""
    notes = _of_graphs.get(graph) if graph is not None else None
    return None if notes is None else notes.error
