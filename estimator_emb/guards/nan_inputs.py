"""Names the features and labels that make the loss of a step NaN or infinite.

Only a step whose loss is not finite looks at them, so that a model may mask missing values that
are NaN, and other steps pay nothing. Such a training step ends before it writes anything; an
evaluation, which changes nothing, logs a warning.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.engine.ordering import after_checks
from estimator_emb.guards.guard import Call, Guard
from estimator_emb.guards.nan_loss import NanInputError
from estimator_emb.reporting.console import logger

_REMEDY = (
    "Correct the data, or fill in what is missing before the model computes with it: a tf.where "
    "around a result keeps NaN out of the loss, but not out of the gradients."
)


class NanInputs(Guard):
    """Looks at the inputs of a step whose loss is not finite."""

    _error: NanInputError | None = None
    """What ended the step."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session and not call.exporting

    def complete(self, spec: Any) -> Any:
        # What a step does for the next one does not wait for its loss.
        kept = self.graph.ahead.kept if self.graph.ahead else None
        losses = self.graph.losses_of(spec)
        numbers = self._numbers()
        if not losses or not numbers or not losses[0].dtype.is_floating:
            return spec
        training = self.call.training
        counts = [len(losses), *map(len, numbers.values())]

        def look(step: Any, *values: Any) -> np.bool_:
            rest = iter(values)
            of_cores, *inputs = [[next(rest) for _ in range(count)] for count in counts]
            is_nan = np.isnan(np.array(of_cores, np.float64)).any()
            # NaN among the inputs does not make a loss infinite.
            bad = (lambda value: ~np.isfinite(value)) if is_nan else np.isinf
            named = zip(numbers, inputs, strict=True)
            lines = [line for name, of_input in named for line in _lines(name, bad, *of_input)]
            if lines and self._error is None:
                where = f"in an evaluation after step {step}: a batch has"
                if training:
                    where = f"during training: step {step + 1} wrote nothing, for its batch has"
                begin = f"{'NaN' if is_nan else 'Infinite'} loss {where}"
                self._error = NanInputError([*lines, _REMEDY], begin)
                if training:
                    raise ValueError(str(self._error))
                logger.warning("%s", self._error)
            return np.bool_(True)

        with tf.name_scope("check_inputs"), tf.device("/cpu:0"):
            step = tf.identity(tf.compat.v1.train.get_global_step())
            given = [step, *losses, *(part for parts in numbers.values() for part in parts)]
            good = tf.cond(
                tf.reduce_all([tf.reduce_all(tf.math.is_finite(loss)) for loss in losses]),
                lambda: tf.constant(True),
                lambda: tf.numpy_function(look, given, tf.bool),
            )
        updates = [update for _, update in (spec.eval_metric_ops or {}).values()]
        after_checks.wait([spec.train_op, spec.loss, *updates], good, kept)
        if training:
            return spec
        with tf.control_dependencies([good]):
            return spec._replace(loss=tf.identity(spec.loss))

    def explain(self, error: Exception) -> Exception | None:
        return self._error

    def _numbers(self) -> dict[str, list[tf.Tensor]]:
        """Returns the numbers of each floating input, and what says where they are."""
        numbers = {}
        for name, value in self.graph.inputs():
            if isinstance(value, tf.SparseTensor):
                parts = [[value.values, value.indices]]
            elif isinstance(value, tf.RaggedTensor):
                parts = [[value.flat_values, *value.nested_row_splits]]
            else:
                of_cores = self.graph.cores.on_each_core(value) if tf.is_tensor(value) else []
                parts = [[one] for one in of_cores]
            for core, of_core in enumerate(parts):
                if of_core[0].dtype.is_floating:
                    numbers[f"{name} of core {core}" if len(parts) > 1 else name] = of_core
        return numbers


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
