"""Compares a graph with the checkpoint that it restores or starts from."""

import contextlib
from typing import Any

from estimator_emb.guards.guard import Call, Guard


class CheckpointFit(Guard):
    """Raises an error that names variables that do not fit, before a session opens."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.directory is not None

    def building(self) -> contextlib.AbstractContextManager[Any]:
        if self.call.method == "train":  # DirectoryLock does this for a training.
            return super().building()
        assert self.call.directory is not None
        return self.call.directory.restoring(self.call.checkpoint)

    def complete(self, spec: Any) -> Any:
        call = self.call
        scaffold, start = getattr(spec, "scaffold", None), self.graph.warm_start()
        assert call.directory is not None
        call.directory.check(scaffold, start, call.tables, trains=call.training)
        return spec
