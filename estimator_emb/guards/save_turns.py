"""Makes the saving hooks of a training take turns."""

from collections.abc import Sequence
from typing import Any

from estimator_emb.checkpoints.restoring import saver
from estimator_emb.guards.guard import Call, Guard, Runs


class SaveTurns(Guard):
    """Prevents two savers of the same folder from writing at once."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.training and call.runs not in (Runs.PLAIN, Runs.DESCRIBED)

    def training(
        self, spec: Any, worker_hooks: Sequence[Any], hooks: Sequence[Any]
    ) -> tuple[Any, Sequence[Any]]:
        of_program = [*spec.training_hooks, *spec.training_chief_hooks]
        lookup = self.graph.lookup
        waits = lookup is not None and lookup.fetch is not None
        saver.take_turns([*worker_hooks, *hooks, *of_program], waits)
        return spec, hooks
