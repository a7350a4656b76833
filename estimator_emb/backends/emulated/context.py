# SPDX-License-Identifier: Apache-2.0
"""Describes an emulated TPU to tensorflow-estimator."""

from collections.abc import Sequence
from typing import Any

from estimator_emb.backends.emulated import topology
from estimator_emb.names.slices import Slice
from estimator_emb.private.tpu_estimator import InternalTPUContext

_HOST = "/task:0/device:CPU:0"


class EmulatedTPU(InternalTPUContext):
    """A TPU as tensorflow-estimator sees it, whose hosts are all this process."""

    def __init__(self, config: Any, shape: Slice, **kwargs: Any):
        super().__init__(config=config, use_tpu=True, embedding_config_spec=None, **kwargs)
        self._metadata = topology.metadata(shape, topology.emulated(shape))

    def _get_tpu_system_metadata(self) -> Any:
        return self._metadata

    @property
    def master_job(self) -> None:
        """None: everything runs in this process."""

    def device_for_replica(self, replica_id: int) -> tuple[str, int]:
        return _HOST, super().device_for_replica(replica_id)[1]

    def __deepcopy__(self, memo: Any) -> "EmulatedTPU":
        return self  # Programs copy `params`, which hold the context.


def host_calls(ctx: InternalTPUContext) -> list[tuple[int, int]]:
    """Returns (host, invocation index) of each call of an input_fn that feeds a host's cores."""
    if not ctx.is_replica_across_hosts():
        return [(host, host) for host in range(ctx.num_hosts)]
    assignment = ctx.device_assignment
    return [
        (
            assignment.topology.task_ordinal_at_coordinates(assignment.coordinates(replica, 0)),
            replica,
        )
        for replica in range(ctx.num_replicas)
    ]


def replicas_of(ctx: InternalTPUContext, host: int) -> Sequence[int]:
    """Returns the replicas that a host feeds, in its order."""
    if ctx.model_parallelism_enabled:
        replicas: Sequence[int] = ctx.device_assignment.lookup_replicas(host, 0)
        return replicas
    each = ctx.num_of_cores_per_host
    return range(host * each, (host + 1) * each)
