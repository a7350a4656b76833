# SPDX-License-Identifier: Apache-2.0
"""What is NaN or infinite when the loss is NaN: tables, their rows, and the model's variables."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

_ROWS_AT_A_TIME = 1 << 14
_SHOWN = 5
_KINDS = {"NaN": np.isnan, "infinity": np.isinf}


class NanLossError(tf.compat.v1.train.NanLossDuringTrainingError):
    """tensorflow-estimator's error, that says what it found.

    Args:
      found: one line for each thing that holds NaN or infinity.
    """

    def __init__(self, found: Sequence[str] = ()):
        # The default is for pickle, which makes a RuntimeError without arguments first.
        RuntimeError.__init__(self)
        self.found = tuple(found)

    def __str__(self) -> str:
        message = tf.compat.v1.train.NanLossDuringTrainingError.__str__(self)
        if not self.found:
            return (
                f"{message} No table and no variable of the model holds NaN or infinity: look at "
                "the features and labels of this step, and at what the loss divides by or takes "
                "the logarithm of."
            )
        begin = f"{message} After this step, these hold NaN or infinity:"
        return "\n  ".join([begin, *self.found])


class EmulatedNanLossError(NanLossError, tf.errors.InvalidArgumentError):
    """That of an emulated TPU, on which a variable that is NaN is an invalid argument."""

    def __init__(self, found: Sequence[str]):
        NanLossError.__init__(self, found)
        tf.errors.InvalidArgumentError.__init__(self, None, None, NanLossError.__str__(self))


@dataclasses.dataclass(frozen=True)
class TableOnHost:
    """A table whose rows are looked at.

    Attributes:
      name: of the table.
      features: keys of the features that look it up.
      shards: its weights, in the order of their rows.
    """

    name: str
    features: Sequence[str]
    shards: Sequence[tf.Variable]


class NanReportHook(tf.compat.v1.train.SessionRunHook):
    """Raises `NanLossError` when a loss is NaN; until then it costs nothing but to look at it.

    It is to come before tensorflow-estimator's own, which raises the bare error.

    Args:
      loss: of the step.
      tables: on the host.
      emulated: whether a TPU is emulated.
    """

    def __init__(self, loss: tf.Tensor, tables: Sequence[TableOnHost] = (), emulated: bool = False):
        self._loss = loss
        self._tables = list(tables)
        self._error = EmulatedNanLossError if emulated else NanLossError

    def before_run(self, run_context: Any) -> tf.compat.v1.train.SessionRunArgs:
        return tf.compat.v1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if np.isnan(run_values.results).any():
            raise self._error(list(self._found(run_context.session)))

    def _found(self, session: Any) -> Iterator[str]:
        of_tables = set()
        for table in self._tables:
            rows: dict[str, list[int]] = {kind: [] for kind in _KINDS}
            start = 0
            for shard in table.shards:
                of_tables.add(shard.name)
                # A view of the variable itself, not a copy.
                values = session.run(shard)
                for kind, holds in _KINDS.items():
                    rows[kind] += [start + row for row in _rows_that_hold(holds, values)]
                start += len(values)
            said = [
                f"{kind} in {len(some):,} of {start:,} rows, {_some(some)}"
                for kind, some in rows.items()
                if some
            ]
            if said:
                features = ", ".join(map(repr, table.features))
                yield f"table {table.name!r} (features {features}): {'; '.join(said)}"
        for variable in tf.compat.v1.trainable_variables():
            if variable.name not in of_tables and variable.dtype.is_floating:
                value = np.asarray(session.run(variable))
                counts = {kind: int(holds(value).sum()) for kind, holds in _KINDS.items()}
                said = [
                    f"{kind} in {count:,} of {value.size:,} numbers"
                    for kind, count in counts.items()
                    if count
                ]
                if said:
                    yield (
                        f"variable {variable.name}: {'; '.join(said)} "
                        f"(Gradient for {variable.name} is NaN)"
                    )


def _rows_that_hold(holds: Callable[..., Any], values: np.ndarray) -> list[int]:
    return [
        start + int(row)
        for start in range(0, len(values), _ROWS_AT_A_TIME)
        for row in np.flatnonzero(holds(values[start : start + _ROWS_AT_A_TIME]).any(axis=1))
    ]


def _some(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:_SHOWN]))
    return f"ids {shown}, ..." if len(rows) > _SHOWN else f"ids {shown}"


def first(spec: Any, hooks: Sequence[Any], emulated: bool) -> tuple[Any, list[Any]]:
    """Returns a training's spec and its user's hooks, with a `NanReportHook` among the latter.

    Args:
      spec: with the hook among its own, or without one where there are no tables.
      hooks: those that come before tensorflow-estimator's.
      emulated: whether a TPU is emulated.
    """
    mine = [one for one in spec.training_hooks if isinstance(one, NanReportHook)]
    others = [one for one in spec.training_hooks if one not in mine]
    mine = mine or [NanReportHook(spec.loss, emulated=emulated)]
    return spec._replace(training_hooks=others), [*hooks, *mine]
