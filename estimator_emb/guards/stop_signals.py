"""Lets SIGTERM, SIGHUP and Ctrl-C end a call. A training ends after its step and saves."""

import contextlib
from collections.abc import Iterator
from typing import Any

from estimator_emb.guards import stopping
from estimator_emb.guards.guard import Call, Guard


class StopSignals(Guard):
    """Handles SIGTERM, SIGHUP and Ctrl-C unless the program handles them."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.method != "export"

    def surround(self) -> contextlib.AbstractContextManager[Any]:
        if self.call.method == "train":
            call = self.call
            return stopping.at_end_of_step(call.model_dir, call.is_chief, alone=call.hosts == 1)
        return stopping.at_once()

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[Any]:
        with stopping.evaluating():
            yield [stopping.EndEvaluation()]
