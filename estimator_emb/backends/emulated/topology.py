"""Describes the shape of an emulated TPU to tensorflow-estimator."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.catalog import environment, slices
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.compat.internals.tpu_estimator import (
    NUM_CORES_TO_COMPUTATION_SHAPE,
    InternalTPUContext,
)
from estimator_emb.engine.alone import ALONE, Alone
from estimator_emb.spec import options

_HOST = "/task:0/device:CPU:0"


def emulated_slice(tpu_config: Any = None) -> slices.Slice:
    """Returns the slice to emulate, by the environment or else by a `TPUConfig`.

    Raises `CannotEmulate` if hosts cannot hold the slice.
    """
    asked = options.asked_topology()
    if asked is not None:
        return asked
    by_environment = options.asked_shards()
    shards = by_environment or getattr(tpu_config, "num_shards", None) or 1
    each = getattr(tpu_config, "num_cores_per_replica", None) or 1
    owner = (
        f"Environment variable {environment.SHARDS}"
        if by_environment
        else "TPUConfig.num_shards is not set correctly: where a TPU is emulated, it"
    )
    if each > 1:
        owner += f", times num_cores_per_replica={each},"
    return slice_with_cores(shards * each, owner)


def slice_with_cores(cores: int, owner: str) -> slices.Slice:
    """Returns the slice with this number of cores. `owner` begins the error message."""
    mesh = NUM_CORES_TO_COMPUTATION_SHAPE.get(cores)
    try:
        return slices.slice_of(cores, None if mesh is None else tuple(mesh))
    except ValueError as error:
        raise options.CannotEmulate(f"{owner} {error}") from None


def emulated(shape: slices.Slice) -> tf.tpu.experimental.Topology:
    """Returns the TensorFlow topology of a slice."""
    return tf.tpu.experimental.Topology(
        mesh_shape=list(shape.mesh), device_coordinates=shape.coordinates()
    )


def metadata(
    shape: slices.Slice, topology: Any = None, devices: tuple[Any, ...] = ()
) -> tf.tpu.experimental.TPUSystemMetadata:
    """Returns a slice's metadata in the form that a TPU reports to tensorflow-estimator."""
    return tf.tpu.experimental.TPUSystemMetadata(
        num_cores=shape.cores,
        num_hosts=shape.hosts,
        num_of_cores_per_host=shape.cores_per_host,
        topology=topology,
        devices=devices,
    )


class EmulatedContext(InternalTPUContext):
    """The context that describes an emulated TPU to tensorflow-estimator.

    This process plays all hosts if it is alone. Otherwise it plays its own, and only training uses
    the other hosts.
    """

    def __init__(self, config: Any, shape: slices.Slice, host: Alone, **kwargs: Any):
        super().__init__(config=config, use_tpu=True, embedding_config_spec=None, **kwargs)
        self._metadata = metadata(shape, emulated(shape))
        self.host, self.own_hosts = host, host.own(range(shape.hosts))
        self._alone = self
        if host.count > 1:
            own = slices.Slice((shape.cores_per_host, 1, 1, 1), (shape.cores_per_host, 1, 1, 1))
            tpu_config = config.tpu_config._replace(num_shards=own.cores)
            alone = config.replace(tpu_config=tpu_config)
            self._alone = EmulatedContext(alone, own, ALONE, **kwargs)

    @contextlib.contextmanager
    def with_mode(self, mode: str) -> Iterator["EmulatedContext"]:
        of_mode = self if mode == ModeKeys.TRAIN else self._alone
        with super(EmulatedContext, of_mode).with_mode(mode) as context:
            yield context

    @property
    def own_cores(self) -> range:
        """The replicas that this process feeds, if no replica spans several hosts."""
        if self.own_hosts == range(self.num_hosts):
            return range(self.num_replicas)
        each = self.num_of_cores_per_host
        return range(self.own_hosts.start * each, self.own_hosts.stop * each)

    @property
    def own_batch_size(self) -> Any:
        """The number of samples per batch that this process reads, or None if not fixed."""
        size = self.global_batch_size
        return size and size * len(self.own_hosts) // self.num_hosts

    def _get_tpu_system_metadata(self) -> Any:
        return self._metadata

    @property
    def master_job(self) -> None:
        """Always None, because everything runs in this process."""

    def device_for_replica(self, replica_id: int) -> tuple[str, int]:
        return _HOST, super().device_for_replica(replica_id)[1]

    def __deepcopy__(self, memo: Any) -> "EmulatedContext":
        return self  # Programs copy `params`, and `params` hold the context.


def host_calls(ctx: InternalTPUContext) -> list[tuple[int, int]]:
    """Returns (host, invocation index) for each input_fn call that feeds a host's cores."""
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
    """Returns the replicas that a host feeds, in the host's order."""
    if ctx.model_parallelism_enabled:
        replicas: Sequence[int] = ctx.device_assignment.lookup_replicas(host, 0)
        return replicas
    each = ctx.num_of_cores_per_host
    return range(host * each, (host + 1) * each)
