"""Rejects TPUs that cannot run TPUEstimator, or that have no embedding hardware."""

from typing import Any

from estimator_emb.catalog.generations import PJRT
from estimator_emb.compat.internals.protos import topology_pb2

_ON_HOST = (
    "run the model there by jax and train the tables on the host, with TPUConfig(device='pjrt'), "
    "which nobody has tried on a TPU; or train on the host, without the TPU, with "
    "TPUConfig(device='emulate')"
)
NO_ESTIMATOR = (
    "no TPUEstimator runs by TensorFlow on TPUs v5e, v5p and v6e: their only runtime is PJRT, and "
    "TPUEstimator stands on the infeed and outfeed of TensorFlow's older one, without which "
    f"TensorFlow says 'No TPU platform registered'. Ways round: {_ON_HOST}; or rewrite the program "
    "for TensorFlow 2, where TPUEmbeddingV2 of tf.tpu.experimental.embedding drives SparseCore: "
    "estimator_emb.embedding.to_tensorflow translates tables and features."
)
"""Why TensorFlow cannot run a TPUEstimator on the generations of `PJRT`, and what to do instead."""


def check_runtime(generation: str | None) -> None:
    """Raises ValueError for a TPU generation that cannot run TPUEstimator."""
    if generation in PJRT:
        raise ValueError(f"TPUConfig: tpu_generation is {generation!r}, and {NO_ESTIMATOR}")


def check_system(metadata: Any, resolver: Any) -> None:
    """Raises ValueError if a TPU's topology says that the TPU has no embedding hardware.

    The topology is known if the program or model parallelism has initialized the TPU. Otherwise
    nothing is checked. `metadata` is a `TPUSystemMetadata`, and `resolver` the `TPUClusterResolver`
    of `RunConfig(cluster=...)`, or None.
    """
    topology = metadata.topology
    if hasattr(topology, "serialized"):
        topology = topology.serialized()
    if isinstance(topology, bytes):
        proto = topology_pb2.TopologyProto.FromString(topology)
    else:
        # The public property returns the same for missing and for unknown embedding hardware.
        proto = getattr(resolver, "_tpu_topology", None)
    if proto is None or not proto.HasField("tpu_hardware_feature"):
        return
    feature = proto.tpu_hardware_feature
    if feature.embedding_feature != feature.UNSUPPORTED:
        return
    raise ValueError(
        "EmbeddingConfigSpec: this TPU has no embedding hardware, by its own topology, so the "
        "tables of this spec cannot run there. Ways round: make the columns with "
        "embedding_lookup_device='tpu_tensor_core', whose tables are variables of the model; or "
        f"{_ON_HOST}."
    )
