"""Names the features and labels that make the loss of a step NaN or infinite.

Only a step whose loss is not finite looks at them, so that a model may mask missing values that
are NaN, and other steps pay nothing. Such a training step ends before it writes anything; an
evaluation, which changes nothing, logs a warning.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.checks import batch_sizes, notes, spread_labels
from estimator_emb.checks.nan_loss import NanInputError
from estimator_emb.messages.console import logger
from estimator_emb.ordering import after_checks
from estimator_emb.private.estimator import ModeKeys

_REMEDY = (
    "Correct the data, or fill in what is missing before the model computes with it: a tf.where "
    "around a result keeps NaN out of the loss, but not out of the gradients."
)


class _Inputs:
    """The inputs of the model in a graph.

    Attributes:
      tensors: all of them, by their paths, such as features['x'].
      numbers: of those that are floating, the numbers, and what says where they are.
      losses: the loss of each core; empty for that of the EstimatorSpec.
      error: what ended the step.
    """

    tensors: Sequence[tuple[str, Any]] = ()
    losses: Sequence[tf.Tensor] = ()
    error: NanInputError | None = None

    def __init__(self) -> None:
        self.numbers: dict[str, list[tf.Tensor]] = {}


def note(
    features: Any, labels: Any, of_cores: Callable[[tf.Tensor], list[Any]] = lambda value: [value]
) -> None:
    """Records what model_fn gets in the default graph; `of_cores` returns each core's tensor."""
    noted = notes.of(_Inputs)
    noted.tensors = list(batch_sizes.named({"features": features, "labels": labels}))
    for name, value in noted.tensors:
        if isinstance(value, tf.SparseTensor):
            parts = [[value.values, value.indices]]
        elif isinstance(value, tf.RaggedTensor):
            parts = [[value.flat_values, *value.nested_row_splits]]
        else:
            parts = [[one] for one in of_cores(value)] if tf.is_tensor(value) else []
        for core, of_core in enumerate(parts):
            if of_core[0].dtype.is_floating:
                noted.numbers[f"{name} of core {core}" if len(parts) > 1 else name] = of_core


def note_losses(losses: Sequence[tf.Tensor]) -> None:
    """Records the loss of each core."""
    notes.of(_Inputs).losses = losses


def of_failed_step(graph: tf.Graph | None) -> NanInputError | None:
    """Returns the error that ended a step of a graph, if its inputs did."""
    return notes.of(_Inputs, graph).error if graph is not None else None


def checked(spec: Any, ahead: tf.Operation | None = None) -> Any:
    """Returns an `EstimatorSpec` whose steps look at the noted inputs if the loss is not finite.

    `ahead` is what a step does for the next one, which does not wait for its loss.
    """
    noted = notes.of(_Inputs)
    if spec.loss is None or not noted.tensors:
        return spec
    losses = list(noted.losses or [spec.loss])
    spread_labels.warn(losses[0], noted.tensors)
    if not noted.numbers or not losses[0].dtype.is_floating:
        return spec
    training = spec.mode == ModeKeys.TRAIN
    counts = [len(losses), *map(len, noted.numbers.values())]

    def look(step: Any, *values: Any) -> np.bool_:
        rest = iter(values)
        of_cores, *inputs = [[next(rest) for _ in range(count)] for count in counts]
        is_nan = np.isnan(np.array(of_cores, np.float64)).any()
        # NaN among the inputs does not make a loss infinite.
        bad = (lambda value: ~np.isfinite(value)) if is_nan else np.isinf
        named = zip(noted.numbers, inputs, strict=True)
        lines = [line for name, of_input in named for line in _lines(name, bad, *of_input)]
        if lines and noted.error is None:
            where = f"in an evaluation after step {step}: a batch has"
            if training:
                where = f"during training: step {step + 1} wrote nothing, for its batch has"
            begin = f"{'NaN' if is_nan else 'Infinite'} loss {where}"
            noted.error = NanInputError([*lines, _REMEDY], begin)
            if training:
                raise ValueError(str(noted.error))
            logger.warning("%s", noted.error)
        return np.bool_(True)

    with tf.name_scope("check_inputs"), tf.device("/cpu:0"):
        step = tf.identity(tf.compat.v1.train.get_global_step())
        given = [step, *losses, *(part for parts in noted.numbers.values() for part in parts)]
        good = tf.cond(
            tf.reduce_all([tf.reduce_all(tf.math.is_finite(loss)) for loss in losses]),
            lambda: tf.constant(True),
            lambda: tf.numpy_function(look, given, tf.bool),
        )
    updates = [update for _, update in (spec.eval_metric_ops or {}).values()]
    after_checks.wait([spec.train_op, spec.loss, *updates], good, ahead)
    if training:
        return spec
    with tf.control_dependencies([good]):
        return spec._replace(loss=tf.identity(spec.loss))


def _lines(name: str, bad: Callable[[Any], Any], values: Any, *places: Any) -> list[str]:
    found = np.argwhere(bad(values))
    if not len(found):
        return []
    place = [int(index) for index in found[0]]
    value = values[tuple(place)]
    for of_rows in reversed(places):
        if of_rows.ndim == 2:  # The indices of a SparseTensor.
            place = of_rows[place[0]].tolist()
        else:  # The row splits of a RaggedTensor.
            row = int(np.searchsorted(of_rows, place[0], side="right")) - 1
            place = [row, place[0] - int(of_rows[row]), *place[1:]]
    where = f" in sample {place[0]}, at {place}" if place else ""
    return [f"{name}: {value}{where}, and {len(found)} such of {values.size:,} numbers"]
