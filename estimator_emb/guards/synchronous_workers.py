"""Rejects a SyncReplicasOptimizer, because each worker updates the tables on its own."""

from typing import Any

from estimator_emb.guards.checks import clusters
from estimator_emb.guards.guard import Call, Guard


class SynchronousWorkers(Guard):
    """Finds the queue of a SyncReplicasOptimizer in a training with parameter servers."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        beside_servers = call.config is not None and call.config.num_ps_replicas
        return call.ours and call.training and call.has_spec and bool(beside_servers)

    def after(self, spec: Any) -> Any:
        clusters.check_asynchronous()
        return spec
