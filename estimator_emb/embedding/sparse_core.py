"""Configures the SparseCore of TPU v5p and v6e for `TPUEmbeddingV2`."""

import functools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.catalog.generations import SPARSE_CORES
from estimator_emb.embedding.specs import SpecTranslation
from estimator_emb.reporting import suggestions
from estimator_emb.spec.config import check_integer

_IDS_PER_SAMPLE = 64
"""The most ids per sample that TPUEmbeddingV2 keeps by default."""


def sparse_core_config(
    translation: SpecTranslation, generation: str, chips: int, ids_per_sample: Mapping[str, int]
) -> Any:
    """Returns a SparseCore configuration that is large enough to keep every id of a batch.

    A SparseCore has an equal part of the samples of its chip. For each table it sends at most

        samples * (ids of a sample, of all features of the table)

    ids to another SparseCore. The number of distinct ids among them is at most the number of rows
    that the other SparseCore holds. It holds every (chips * SparseCores of a chip)-th row.
    TPUEmbeddingV2's default is 256 for both limits.

    Args:
      translation: the result of `to_tensorflow` with `sparse_core=True` and a `batch_size`, the
        number of samples of a chip.
      generation: 'v5p', whose chips have 4 SparseCores, or 'v6e', whose chips have 2.
      chips: number of chips. Each chip is a replica.
      ids_per_sample: feature key -> the most ids in a sample of the feature, an int >= 1.

    Returns:
      A `tf.tpu.experimental.embedding.SparseCoreEmbeddingConfig` that does not stack tables or
      allow ids to be dropped.

    Raises:
      ValueError: this TensorFlow has no SparseCoreEmbeddingConfig, or an argument is out of its
        range.

    Source: `TPUEmbeddingV2` of tensorflow/python/tpu/tpu_embedding_v3.py, TF 2.21.0; SparseCores:
    https://docs.cloud.google.com/tpu/docs/v5p and .../v6e. Untested on a TPU.
    """
    theirs = getattr(tf.tpu.experimental.embedding, "SparseCoreEmbeddingConfig", None)
    if theirs is None:
        raise ValueError(
            f"sparse_core_config: TensorFlow {tf.__version__} has no SparseCoreEmbeddingConfig."
        )
    check = functools.partial(suggestions.check_argument, "sparse_core_config")
    allowed = f"one of {', '.join(SPARSE_CORES)}"
    check(generation in SPARSE_CORES, "generation", allowed, generation)
    check_integer("sparse_core_config", "chips", chips, 1)
    features = translation.features
    is_of_features = set(ids_per_sample) == set(features)
    wanted = f"of the features {sorted(features)}"
    check(is_of_features, "ids_per_sample", wanted, sorted(ids_per_sample, key=str))
    cores = SPARSE_CORES[generation]
    most: dict[str, int] = {}
    rows: dict[str, int] = {}
    for key, feature in features.items():
        count = ids_per_sample[key]
        check_integer(f"Feature {key!r}", "ids_per_sample", count, 1)
        samples = feature.output_shape.num_elements()
        if not samples or samples % cores:
            raise ValueError(
                f"Feature {key!r}: give to_tensorflow a batch_size that the {cores} SparseCores of "
                f"a chip of TPU {generation} can divide; got {samples}."
            )
        table = feature.table
        most[table.name] = most.get(table.name, 0) + samples // cores * count
        rows[table.name] = -(-table.vocabulary_size // (chips * cores))
    return theirs(
        disable_table_stacking=True,
        max_ids_per_chip_per_sample=max(_IDS_PER_SAMPLE, *ids_per_sample.values()),
        max_ids_per_table=most,
        max_unique_ids_per_table={name: min(most[name], rows[name]) for name in most},
        allow_id_dropping=False,
    )
