"""Reports which tables, rows and variables hold NaN or infinity when the loss is NaN."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.engine.tables.storage import StoredTable
from estimator_emb.guards.guard import Call, Guard

_ROWS_AT_A_TIME = 1 << 14
_SHOWN = 5
_KINDS = {"NaN": np.isnan, "infinity": np.isinf}


class NanLossError(tf.compat.v1.train.NanLossDuringTrainingError):
    """tensorflow-estimator's error of a NaN loss, with a line for each bad table or variable."""

    begin = "After this step, these hold NaN or infinity:"

    def __init__(self, found: Sequence[str] = ()):
        # The default is for pickle, which first creates the error without arguments.
        RuntimeError.__init__(self)
        self.found = tuple(found)

    def __str__(self) -> str:
        message = tf.compat.v1.train.NanLossDuringTrainingError.__str__(self)
        if not self.found:
            return (
                f"{message} No table and no variable of the model, and no feature and no label of "
                "this step, holds NaN or infinity: look at what the loss divides by or takes the "
                "logarithm or the root of."
            )
        return "\n  ".join([f"{message} {self.begin}", *self.found])


class EmulatedNanLossError(NanLossError, tf.errors.InvalidArgumentError):
    """A NaN loss on an emulated TPU, where it is also an InvalidArgumentError as on a TPU."""

    def __init__(self, found: Sequence[str]):
        NanLossError.__init__(self, found)
        tf.errors.InvalidArgumentError.__init__(self, None, None, str(self))


class NanInputError(EmulatedNanLossError):
    """A loss that features or labels make NaN or infinite, by an op of the step."""

    def __init__(self, found: Sequence[str], begin: str):
        self.begin = begin
        super().__init__(found)

    def __str__(self) -> str:
        return "\n  ".join([self.begin, *self.found])


class NanLoss(Guard):
    """Ends a training whose loss is NaN, with an error that says where NaN is."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours and call.training

    def hooks(self, spec: Any) -> Iterable[Any]:
        lookup = self.graph.lookup
        yield NanReportHook(spec.loss, lookup.tables if lookup else (), self.call.on_cores)

    def training(
        self, spec: Any, worker_hooks: Sequence[Any], hooks: Sequence[Any]
    ) -> tuple[Any, Sequence[Any]]:
        """Moves the hook of `spec` to `hooks`, which run before tensorflow-estimator's."""
        mine = [hook for hook in spec.training_hooks if isinstance(hook, NanReportHook)]
        others = [hook for hook in spec.training_hooks if hook not in mine]
        return spec._replace(training_hooks=others), [*hooks, *mine]


class NanReportHook(tf.compat.v1.train.SessionRunHook):
    """A hook that raises `NanLossError` when the loss of a step is NaN.

    It fetches only the loss until then. It must come before tensorflow-estimator's own hook, whose
    error does not say what is NaN.
    """

    def __init__(self, loss: tf.Tensor, tables: Sequence[StoredTable] = (), emulated: bool = False):
        self._loss = loss
        self._tables = list(tables)
        self._error = EmulatedNanLossError if emulated else NanLossError

    def before_run(self, run_context: Any) -> tf.compat.v1.train.SessionRunArgs:
        return tf.compat.v1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if np.isnan(run_values.results).any():
            raise self._error(list(self._found(run_context.session)))

    def _found(self, session: Any) -> Iterator[str]:
        for table in self._tables:
            rows: dict[str, list[int]] = {kind: [] for kind in _KINDS}
            start = 0
            for shard in table.variables:
                values = session.run(shard.weights)  # A view of the variable, not a copy.
                for kind, holds in _KINDS.items():
                    rows[kind] += [start + row for row in _rows_that_hold(holds, values)]
                start += len(values)
            of_rows = {kind: (len(ids), _some(ids)) for kind, ids in rows.items()}
            if found := _listed(of_rows, f"{start:,} rows"):
                features = ", ".join(repr(feature.key) for feature in table.table.features)
                yield f"table {table.name!r} (features {features}): {found}"
        of_tables = {shard.weights.name for table in self._tables for shard in table.variables}
        for variable in tf.compat.v1.trainable_variables():
            name = variable.name
            if name not in of_tables and variable.dtype.is_floating:
                value = np.asarray(session.run(variable))
                counts = {kind: (int(holds(value).sum()), "") for kind, holds in _KINDS.items()}
                if found := _listed(counts, f"{value.size:,} numbers"):
                    yield f"variable {name}: {found} (Gradient for {name} is NaN)"


def _listed(counts: dict[str, tuple[int, str]], among: str) -> str:
    found = ((kind, *one) for kind, one in counts.items() if one[0])
    return "; ".join(f"{kind} in {count:,} of {among}{where}" for kind, count, where in found)


def _rows_that_hold(holds: Callable[..., Any], values: np.ndarray) -> list[int]:
    return [
        start + int(row)
        for start in range(0, len(values), _ROWS_AT_A_TIME)
        for row in np.flatnonzero(holds(values[start : start + _ROWS_AT_A_TIME]).any(axis=1))
    ]


def _some(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:_SHOWN]))
    return f", ids {shown}, ..." if len(rows) > _SHOWN else f", ids {shown}"
