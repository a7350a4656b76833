"""Pads the ids of columns that look up their tables on the tensor core of a TPU."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.column_classes import (
    TENSOR_CORE_MASK_KEY_SUFFIX,
    pad_sparse_embedding_lookup_indices,
)
from estimator_emb.spec.config import EmbeddingConfigSpec


def padded(spec: EmbeddingConfigSpec, features: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """Returns padded ids and their masks, by feature key, for columns on the tensor core.

    With `embedding_lookup_device='tpu_tensor_core'`, the table is a variable of the model, and the
    program's own optimizer trains it. The lookup takes ids padded to `tensor_core_shape`. Raises
    KeyError for a missing feature. Raises ValueError for ids that are not sparse integers, or for
    another feature with the key of a mask.
    """
    padded = {}
    for column in spec.tensor_core_feature_columns or ():
        key = column.get_feature_key_name()
        if key not in features:
            raise KeyError(
                f"Feature {key} of column {column.name} is not among the features of the "
                f"batch, {sorted(features)}."
            )
        ids = features[key]
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_sparse()
        if not isinstance(ids, tf.SparseTensor) or not ids.dtype.is_integer:
            raise ValueError(
                f"Feature {key} of column {column.name}: with "
                "embedding_lookup_device='tpu_tensor_core', ids must be a SparseTensor or "
                f"RaggedTensor of integers; got {ids!r}."
            )
        mask_key = key + TENSOR_CORE_MASK_KEY_SUFFIX
        if mask_key in features:
            raise ValueError(
                f"Mask key {mask_key} for Tensor Core embedding is already in use: column "
                f"{column.name} needs it for a mask. Rename the feature {mask_key} in input_fn."
            )
        values, mask = pad_sparse_embedding_lookup_indices(ids, column._tensor_core_shape[1])
        shape = [ids.shape[0], column._tensor_core_shape[1]]
        padded[key] = tf.ensure_shape(values, shape)
        padded[mask_key] = tf.ensure_shape(mask, shape)
    return padded
