"""Makes a step read its variables before it writes them."""

from collections.abc import Iterable, Sequence
from typing import Any

from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.engine.ordering.reads_before_writes import ReadsFirstHook
from estimator_emb.guards.guard import Call, Guard, with_hooks


class ReadsFirst(Guard):
    """Adds `ReadsFirstHook` after all other hooks."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours and not call.exporting and call.mode != ModeKeys.PREDICT

    def hooks(self, spec: Any) -> Iterable[Any]:
        return [] if self.call.training else [ReadsFirstHook(spec, spec.evaluation_hooks)]

    def training(
        self, spec: Any, worker_hooks: Sequence[Any], hooks: Sequence[Any]
    ) -> tuple[Any, Sequence[Any]]:
        of_program = [*spec.training_hooks, *spec.training_chief_hooks]
        hook = ReadsFirstHook(spec, [*worker_hooks, *hooks, *of_program])
        return with_hooks(spec, [hook], self.call.mode), hooks
