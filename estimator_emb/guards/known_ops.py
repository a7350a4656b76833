"""Rejects a model with TPU-only ops before a session opens."""

from typing import Any

from estimator_emb.guards.checks import tpu_ops
from estimator_emb.guards.guard import Call, Guard


class KnownOps(Guard):
    """Checks that every op of the graph has a kernel for CPU or GPU."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours

    def built(self, spec: Any) -> Any:
        if self.call.exporting:  # Before the TPU graph is added.
            tpu_ops.check_kernels()
        return spec

    def complete(self, spec: Any) -> Any:
        if not self.call.exporting:
            tpu_ops.check_kernels()
        return spec
