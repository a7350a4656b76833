"""Explains errors about None that occur because input_fn returned only features."""

import contextlib
import re
from typing import Any

from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.guards.guard import Call, Guard, ModelBatch
from estimator_emb.reporting import error_notes

_SHAPES = re.compile(r"[(\[](None|\d+),( ?(None|\d+),?)*[)\]]|<TensorShape.*?>")
"""Matches shapes in a message. A None in a shape is not a missing value."""


class MissingLabels(Guard):
    """Explains an error of a model_fn that got no labels from input_fn."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session and call.mode != ModeKeys.PREDICT

    def around(self, batch: ModelBatch) -> contextlib.AbstractContextManager[Any]:
        return error_notes.explained(self._explain, batch.labels)

    def _explain(self, error: Exception, labels: Any) -> None:
        kinds = (AttributeError, TypeError, ValueError)
        is_of_none = isinstance(error, kinds) and "None" in _SHAPES.sub("", str(error))
        if labels is None and is_of_none:
            error.args = (
                f"{error} In model_fn, labels is None in mode {self.call.mode!r}, for input_fn "
                "returned only features: return a Dataset of (features, labels), or both.",
            )
