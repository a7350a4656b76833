"""Rejects a model whose ops only a TPU runs, before a session opens."""

from typing import Any

from estimator_emb.guards.checks import tpu_ops
from estimator_emb.guards.guard import Call, Guard


class KnownOps(Guard):
    """Looks every op of the graph up among the kernels for CPU and GPU."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours

    def built(self, spec: Any) -> Any:
        if self.call.exporting:  # Before the graph of a TPU is added.
            tpu_ops.check_kernels()
        return spec

    def complete(self, spec: Any) -> Any:
        if not self.call.exporting:
            tpu_ops.check_kernels()
        return spec
