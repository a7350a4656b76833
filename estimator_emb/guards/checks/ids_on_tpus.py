"""Finds ids and weights that a TPU rejects, for emulated TPUs and `check`.

Messages contain the phrases of a TPU's errors.

Source: `_tpu_estimator_embedding.split_inputs` of tensorflow-estimator 2.15.0.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.spec.resolved import Feature, Table


@dataclasses.dataclass(frozen=True)
class Refusal:
    """The reason why a TPU rejects an input, without a full stop, and what to do instead."""

    problem: str
    instead: str

    def __str__(self) -> str:
        return f"{self.problem}. {_capitalized(self.instead)}."


def shared_weight_refusals(tables: Sequence[Table]) -> dict[str, Refusal]:
    """Returns key -> `Refusal` for features that use an earlier feature's weights."""
    owners: dict[str, str] = {}
    found = {}
    for table in tables:
        for feature in table.features:
            key = feature.weight_key
            owner = f"feature {feature.key!r} of table {table.name!r}"
            if key is None or owners.setdefault(key, owner) == owner:
                continue
            found[feature.key] = Refusal(
                f"{_no_weights(owner, key)}. {_capitalized(owners[key])} takes them",
                "copy the weights in input_fn, under a key for each feature; or run with "
                "use_tpu=False",
            )
    return found


def feature_refusal(table: Table, feature: Feature, features: Mapping[str, Any]) -> Refusal | None:
    """Returns why a TPU rejects the tensors or type specs of a feature, if it does."""
    owner = f"Feature {feature.key!r} of table {table.name!r}"
    ids, key = features.get(feature.key), feature.weight_key
    weights = None if key is None else features.get(key)
    dense = (tf.Tensor, tf.TensorSpec)
    one_each = table.config.combiner is None and not feature.max_sequence_length
    if getattr(ids, "dtype", None) == tf.string:
        elsewhere = (
            "; or run with use_tpu=False, where the column's own vocabulary or hash looks them up"
        )
        return Refusal(
            f"{owner}: SparseTensor with string as values are not supported on a TPU, and neither "
            "are other strings",
            "turn them into ids in input_fn, for example with a tf.lookup.StaticHashTable or "
            f"tf.strings.to_hash_bucket_fast{elsewhere if feature.to_ids else ''}. feature_key = "
            f"{feature.key}",
        )
    if key is not None and weights is None and ids is not None:
        return Refusal(
            f"{_no_weights(owner, key)}. input_fn returns {sorted(map(str, features))}",
            "return the weights under their key, one for each id",
        )
    if one_each and key and isinstance(ids, dense):
        return Refusal(
            f"{owner}: Found weights {key} for weighted_categorical_column, which "
            f"is not compatible with sparse feature {feature.key} enqueued as dense tensor: its "
            "table has combiner None",
            "give ids and weights as SparseTensors, or leave the weights out",
        )
    if isinstance(weights, dense) and not isinstance(ids, dense):
        return Refusal(
            f"{owner}: weighted_categorical_column with weight key name {key} has dense weights. "
            "Dense weights are not supported on TPU. Please use sparse weights instead: the ids "
            "are not dense",
            "give weights in the form of the ids, one for each id",
        )
    return None


def _no_weights(owner: str, key: str) -> str:
    return (
        f"{_capitalized(owner)}: Cannot find weights {key} for weighted_categorical_column. Please "
        "check if the weights are present in feature dict. Also note weight-sharing among "
        "weighted_categorical_column is not supported on TPU"
    )


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]
