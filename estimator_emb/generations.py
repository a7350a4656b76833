# SPDX-License-Identifier: Apache-2.0
"""What the generations of TPUs have for embedding tables, and which specs run on them."""

from typing import Any

from estimator_emb.compat.internals.protos import topology_pb2
from estimator_emb.config import EmbeddingConfigSpec

EMBEDDING_HARDWARE = {
    "v2": "TPUEmbedding",
    "v3": "TPUEmbedding",
    "v4": "TPUEmbedding",
    "v5e": "none",
    "v5p": "SparseCore",
    "v6e": "SparseCore",
}
"""Generation -> its embedding hardware. `backends.tpu` drives that called 'TPUEmbedding'."""

_ELSEWHERE = (
    "Ways round: make the columns with embedding_lookup_device='tpu_tensor_core', whose tables are "
    "variables of the model and run on any TPU; or keep the tables on the TPU's host, whose host "
    "engine trains them and feeds the model on the TPU, with TPUConfig(tables='host'); or train "
    "on the host, without the TPU, with TPUConfig(device='host')"
)
_TF2_PROGRAM = (
    "; or rewrite the program for TPUEmbeddingV2 of tf.tpu.experimental.embedding, to which "
    "estimator_emb.embedding.to_tensorflow translates tables and features"
)


def check_generation(generation: object) -> None:
    """Raises ValueError: `generation` is no key of `EMBEDDING_HARDWARE`."""
    if generation not in EMBEDDING_HARDWARE:
        raise ValueError(
            f"TPUConfig: tpu_generation must be one of {', '.join(EMBEDDING_HARDWARE)}, or None; "
            f"got {generation!r}."
        )


def check_spec(spec: EmbeddingConfigSpec, generation: str | None) -> None:
    """Refuses a spec whose tables do not run on a generation of TPUs; None is not checked.

    Raises:
      ValueError: they do not. The message says what does.
    """
    hardware = EMBEDDING_HARDWARE[generation] if generation else "TPUEmbedding"
    if hardware == "TPUEmbedding" or not (spec.table_to_config_dict or spec.feature_columns):
        return
    if hardware == "none":
        raise ValueError(
            f"EmbeddingConfigSpec: TPU {generation} has no embedding hardware, so the tables of "
            f"this spec cannot run there. {_ELSEWHERE}."
        )
    raise ValueError(
        f"EmbeddingConfigSpec: the embedding hardware of TPU {generation} is SparseCore, which "
        f"TPUEstimator cannot drive, so the tables of this spec cannot run there. {_ELSEWHERE}"
        f"{_TF2_PROGRAM}."
    )


def check_system(metadata: Any, resolver: Any) -> None:
    """Refuses a TPU that says of itself that it has no embedding hardware.

    It says so in its topology, which is known where the program or model parallelism has
    initialized it; otherwise nothing is checked.

    Args:
      metadata: a `TPUSystemMetadata`.
      resolver: the `TPUClusterResolver` of `RunConfig(cluster=...)`, or None.

    Raises:
      ValueError: it has none.
    """
    topology = metadata.topology
    if hasattr(topology, "serialized"):
        topology = topology.serialized()
    if isinstance(topology, bytes):
        proto = topology_pb2.TopologyProto.FromString(topology)
    else:
        # Its public property does not tell "none" from "not said".
        proto = getattr(resolver, "_tpu_topology", None)
    if proto is None or not proto.HasField("tpu_hardware_feature"):
        return
    feature = proto.tpu_hardware_feature
    if feature.embedding_feature != feature.UNSUPPORTED:
        return
    raise ValueError(
        "EmbeddingConfigSpec: this TPU has no embedding hardware, by its own topology, so the "
        f"tables of this spec cannot run there. {_ELSEWHERE}."
    )
