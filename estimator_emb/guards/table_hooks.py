"""Adds the hooks of tables to a session: lookups a step ahead, and the count of bad ids."""

from collections.abc import Iterable
from typing import Any

from estimator_emb.guards.guard import Call, Guard


class TableHooks(Guard):
    """Returns the hooks that the tables of a graph need."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours and call.has_spec and not call.exporting

    def hooks(self, spec: Any) -> Iterable[Any]:
        lookup = self.graph.lookup
        wanted = (lookup.step.next_step, lookup.step.dropped) if lookup else ()
        return [hook for hook in wanted if hook]
