"""Keeps a second training out of a folder of checkpoints."""

import contextlib
from typing import Any

from estimator_emb.guards.guard import Call, Guard


class DirectoryLock(Guard):
    """Locks the folder in which a training saves, and tidies it up."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.method == "train" and call.directory is not None

    def surround(self) -> contextlib.AbstractContextManager[Any]:
        assert self.call.directory is not None
        return self.call.directory.continuing(self.call.config, self.call.is_chief)
