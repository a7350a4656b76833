# SPDX-License-Identifier: Apache-2.0
"""What a program finds around it on a TPU core, provided on the host."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_tpu_ops
from tensorflow.python.tpu import tpu_function
from tensorflow_estimator.python.estimator.tpu import tpu_context

HOST_DEVICE = "/device:CPU:0"

_lock = threading.RLock()


def _unchanged(x: Any, *args: Any, name: str | None = None, **kwargs: Any) -> tf.Tensor:
    return tf.identity(x, name)


_collective_ops = ("cross_replica_sum", "collective_permute", "all_to_all")
"""The ops between cores; where there is one core, each returns what it is given."""


@contextlib.contextmanager
def one_core(shard_context: bool) -> Iterator[None]:
    """Runs a model_fn as the only core of a TPU would.

    `CrossShardOptimizer` and `tf.tpu.cross_replica_sum` compute over one core; their own op has no
    kernel off a TPU, and its mere presence in a graph fails every session call.

    Args:
      shard_context: True makes TPU embedding columns read activations from the features; False
        leaves them to look up raw ids themselves, as they do without an EmbeddingConfigSpec.
    """
    with _lock, contextlib.ExitStack() as stack:
        for name in _collective_ops:
            original = getattr(gen_tpu_ops, name)
            setattr(gen_tpu_ops, name, _unchanged)
            stack.callback(setattr, gen_tpu_ops, name, original)
        if shard_context:
            stack.enter_context(tpu_function.tpu_shard_context(1))
        yield


class HostContext(tpu_context.TPUContext):
    """`params['context']` on the host: one host with one core.

    Args:
      call_from_input_fn: True in an input_fn, False in a model_fn; some members are for one of them
        only, as on a TPU.
    """

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
    def num_replicas(self) -> int:
        return 1

    @property
    def num_hosts(self) -> int:
        return 1

    @property
    def num_of_replicas_per_host(self) -> int:
        return 1

    @property
    def device_assignment(self) -> None:
        """None: there is no topology to assign."""
        if self._call_from_input_fn:
            raise RuntimeError("This TPUContext instance must not be called from input_fn.")

    def device_for_replica(self, replica_id: int) -> tuple[str, int]:
        return HOST_DEVICE, replica_id

    @property
    def tpu_host_placement_function(self) -> Any:
        return lambda host_id: HOST_DEVICE
