# SPDX-License-Identifier: Apache-2.0
"""The TPU context of a program that runs on the host with `use_tpu=False`."""

from estimator_emb.private.tpu_estimator import TPUContext

HOST_DEVICE = "/device:CPU:0"


class HostContext(TPUContext):
    """`params['context']` on the host: one host with one core.

    As on a TPU, some members are for an input_fn only (`call_from_input_fn`), some for a model_fn.
    """

    num_replicas = num_hosts = num_of_replicas_per_host = 1

    def __init__(self, call_from_input_fn: bool):
        super().__init__(
            internal_ctx=None,
            input_device=HOST_DEVICE,
            invocation_index=0,
            call_from_input_fn=call_from_input_fn,
            host_id=0,
        )

    def current_input_fn_deployment(self) -> tuple[str, int, int, int]:
        """(device, index of this input_fn call, number of calls, replicas fed by this call)."""
        if not self._call_from_input_fn:
            raise RuntimeError("This TPUContext instance must not be called from model_fn.")
        return HOST_DEVICE, 0, 1, 1

    @property
    def device_assignment(self) -> None:
        if self._call_from_input_fn:
            raise RuntimeError("This TPUContext instance must not be called from input_fn.")

    def device_for_replica(self, replica_id: int) -> tuple[str, int]:
        return HOST_DEVICE, replica_id

    def tpu_host_placement_function(self, host_id: int) -> str:
        return HOST_DEVICE
