"""Reports which tables, rows and variables hold NaN or infinity when the loss is NaN."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.engine.tables.storage import StoredTable
from estimator_emb.guards.checks import non_finite
from estimator_emb.guards.guard import Call, Guard


class NanLossError(tf.compat.v1.train.NanLossDuringTrainingError):
    """tensorflow-estimator's error about a NaN loss, plus a line per bad table or variable."""

    begin = "After this step, these hold NaN or infinity:"

    def __init__(self, found: Sequence[str] = ()):
        # The default is for pickle: it first creates the error without arguments.
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
    """A NaN loss on an emulated TPU. As on a TPU, it is also an InvalidArgumentError."""

    def __init__(self, found: Sequence[str]):
        NanLossError.__init__(self, found)
        tf.errors.InvalidArgumentError.__init__(self, None, None, str(self))


class NanInputError(EmulatedNanLossError):
    """Raised for NaN or infinity in a step's features, labels or weights."""

    def __init__(self, found: Sequence[str], begin: str):
        self.begin = begin
        super().__init__(found)

    def __str__(self) -> str:
        return "\n  ".join([self.begin, *self.found])


class NanLoss(Guard):
    """Ends a training when its loss is NaN, with an error that says where NaN is."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours and call.training

    def hooks(self, spec: Any) -> Iterable[Any]:
        lookup = self.graph.lookup
        yield NanReportHook(spec.loss, lookup.tables if lookup else (), self.call.on_cores)

    def training(
        self, spec: Any, worker_hooks: Sequence[Any], hooks: Sequence[Any]
    ) -> tuple[Any, Sequence[Any]]:
        """Moves the hook of `spec` to `hooks`, so that it runs before tensorflow-estimator's."""
        mine = [hook for hook in spec.training_hooks if isinstance(hook, NanReportHook)]
        others = [hook for hook in spec.training_hooks if hook not in mine]
        return spec._replace(training_hooks=others), [*hooks, *mine]


class NanReportHook(tf.compat.v1.train.SessionRunHook):
    """A hook that raises `NanLossError` when the loss of a step is NaN.

    Until then it fetches only the loss. It must run before tensorflow-estimator's own hook, because
    that hook's error does not say where NaN is.
    """

    def __init__(self, loss: tf.Tensor, tables: Sequence[StoredTable] = (), emulated: bool = False):
        self._loss = loss
        self._tables = list(tables)
        self._error = EmulatedNanLossError if emulated else NanLossError

    def before_run(self, run_context: Any) -> tf.compat.v1.train.SessionRunArgs:
        return tf.compat.v1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if np.isnan(run_values.results).any():
            variables = [shard.weights for table in self._tables for shard in table.variables]
            variables += tf.compat.v1.trainable_variables()
            # Fetching a table returns a view of the variable, not a copy.
            read = run_context.session.run
            raise self._error(list(non_finite.lines_of_weights(self._tables, variables, read)))
