"""Writes the loss of a training under the same tag as its evaluations."""

from typing import Any

from estimator_emb.engine import summaries
from estimator_emb.guards.guard import Call, Guard


class LossSummary(Guard):
    """Adds the loss to the summaries of tables, if the program enabled them."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours and call.training and call.has_spec

    def complete(self, spec: Any) -> Any:
        lookup = self.graph.lookup
        if lookup is not None and lookup.step.summarizes:
            summaries.add_loss(spec.loss)
        return spec
