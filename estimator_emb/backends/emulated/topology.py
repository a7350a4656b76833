# SPDX-License-Identifier: Apache-2.0
"""The shape of an emulated TPU."""

from typing import Any

import tensorflow as tf

from estimator_emb.names import environment, slices
from estimator_emb.private.tpu_estimator import NUM_CORES_TO_COMPUTATION_SHAPE
from estimator_emb.spec import options


def of_config(tpu_config: Any = None) -> slices.Slice:
    """Returns the slice that a `TPUConfig` or the environment emulates, if hosts can hold it."""
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
    return of_cores(shards * each, owner)


def of_cores(cores: int, owner: str) -> slices.Slice:
    """Returns the slice with this number of cores; `owner` begins the error message."""
    mesh = NUM_CORES_TO_COMPUTATION_SHAPE.get(cores)
    try:
        return slices.of_cores(cores, None if mesh is None else tuple(mesh))
    except ValueError as error:
        raise options.CannotEmulate(f"{owner} {error}") from None


def emulated(shape: slices.Slice) -> tf.tpu.experimental.Topology:
    """Returns the topology of a slice."""
    return tf.tpu.experimental.Topology(
        mesh_shape=list(shape.mesh), device_coordinates=shape.coordinates()
    )


def metadata(
    shape: slices.Slice, topology: Any = None, devices: tuple[Any, ...] = ()
) -> tf.tpu.experimental.TPUSystemMetadata:
    """Returns a slice's metadata, as a TPU's master reports them to tensorflow-estimator."""
    return tf.tpu.experimental.TPUSystemMetadata(
        num_cores=shape.cores,
        num_hosts=shape.hosts,
        num_of_cores_per_host=shape.cores_per_host,
        topology=topology,
        devices=devices,
    )
