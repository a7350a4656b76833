"""Prevents two simultaneous trainings in the same folder of checkpoints."""

import contextlib
from typing import Any

from estimator_emb.guards.guard import Call, Guard


class DirectoryLock(Guard):
    """Locks the folder in which a training saves, and removes unfinished saves."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.method == "train" and call.directory is not None

    def surround(self) -> contextlib.AbstractContextManager[Any]:
        assert self.call.directory is not None
        return self.call.directory.continuing(self.call.config, self.call.is_chief)
