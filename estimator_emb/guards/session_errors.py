"""Explains the errors of an estimator's calls, using the guards of the failed graph."""

import contextlib
from typing import Any

import tensorflow as tf

from estimator_emb.catalog import environment
from estimator_emb.catalog.limits import HOW_TO_OUTFEED
from estimator_emb.engine import bad_input
from estimator_emb.guards.guard import Call, Guard, graph_guards
from estimator_emb.reporting import error_notes

_HOW_TO_EMULATE = (
    f" To run this program without a TPU, set the environment variable {environment.DEVICE}="
    "emulate, or pass TPUConfig(device='emulate')."
)


class SessionErrors(Guard):
    """Shortens TensorFlow's errors, and adds advice if the program's TPU is missing."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.method != "export"

    def surround(self) -> contextlib.AbstractContextManager[Any]:
        return error_notes.explained(self._explained)

    def _explained(self, error: Exception) -> Exception | None:
        if isinstance(error, tf.errors.OpError):
            guards = graph_guards(error_notes.graph_of(error))
            found = guards.explain(error) if guards is not None else None
            if not error_notes.is_full():
                error_notes.shorten(error)
            if found not in (None, error):
                raise found from (error if error_notes.is_full() else None)  # `error` repeats it.
        text = str(error)
        if isinstance(error, tf.errors.InvalidArgumentError):
            error._message = bad_input.readable(error.message)
        elif self.call.on_cores and isinstance(error, ValueError):
            if "has been marked as not fetchable" in text and HOW_TO_OUTFEED not in text:
                error.args = (f"{text} {HOW_TO_OUTFEED}", *error.args[1:])
        elif isinstance(error, RuntimeError) and "Cannot find any TPU cores" in text:
            return None if _HOW_TO_EMULATE in text else RuntimeError(text + _HOW_TO_EMULATE)
        return None
