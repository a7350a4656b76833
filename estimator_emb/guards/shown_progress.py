"""Shows the progress of a training, and logs the metrics of an evaluation."""

import contextlib
from collections.abc import Iterator
from typing import Any

from estimator_emb.guards.checks import program_checks
from estimator_emb.guards.guard import Call, Guard
from estimator_emb.reporting import progress


class ShownProgress(Guard):
    """Adds a bar or lines to a training. An evaluation logs lines and pauses the bar."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.method in ("train", "evaluate")

    @contextlib.contextmanager
    def surround(self) -> Iterator[Any]:
        call = self.call
        if call.method == "evaluate":
            with progress.pausing():
                yield []
            return
        if call.host:  # Host 0 shows the progress of all. A cluster's workers show their own.
            yield []
            return
        # Without a batch size, steps per second are shown.
        size = call.batch_size if program_checks.is_batch_size(call.batch_size) else None
        yield progress.log_beside(call.hooks, call.steps, call.max_steps, size, call.model_dir)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[Any]:
        self._log = progress.EvaluationLog(self.call.steps)
        with progress.pausing():
            yield [self._log]

    def evaluated(self, metrics: Any, output_dir: str) -> None:
        progress.log_evaluation(metrics, self.call.model_dir, output_dir, self._log.batches)
