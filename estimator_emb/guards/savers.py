"""Gives a training a saver for its tables, and adds the tables to the program's savers."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.restoring import live_servers, saver
from estimator_emb.engine.tables import helper_variable
from estimator_emb.guards.guard import Call, Guard, with_hooks


class Savers(Guard):
    """Saves tables in parts. With parameter servers, a new chief keeps the servers' steps."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours and call.has_spec

    def complete(self, spec: Any) -> Any:
        if self.graph.lookup is not None:
            saver.complete(
                saver.savers_of_program(spec),
                self.graph.lookup.all_variables(),
                helper_variable.HELPER_VARIABLE,
                on_tpu=self.call.on_cores,
                training=self.call.training,
            )
        return spec

    def training(
        self, spec: Any, worker_hooks: Sequence[Any], hooks: Sequence[Any]
    ) -> tuple[Any, Sequence[Any]]:
        config, savers = self.call.config, tf.compat.v1.GraphKeys.SAVERS
        has_saver = spec.scaffold.saver or tf.compat.v1.get_collection(savers)
        made: saver.PartsSaver | None = None
        if config.num_ps_replicas:
            seen = live_servers.StepsSeen()
            spec = with_hooks(spec, [seen], self.call.mode)
            if self.call.is_chief:
                made = live_servers.LiveServersSaver(config, seen)
        if not has_saver:
            parts = self.graph.lookup.parts if self.graph.lookup else None
            tf.compat.v1.add_to_collection(savers, made or saver.PartsSaver(config, parts))
        return spec, hooks
