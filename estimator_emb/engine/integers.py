"""Reads features off a TPU as TensorFlow's columns do, unlike columns on a TPU.

Some columns look integers up: they have a vocabulary of integers, hash buckets or a default value.
Off a TPU, and in a SavedModel, they turn the integers of the batch into ids. On a TPU, emulated or
not, they do not. There input_fn looks the integers up, and the table receives them as ids.

The functions below write the integers as strings, to be read like the strings of any column.
Strings outside the vocabulary are left out, but keep their position in a sequence.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.engine.inputs import PADDING_ID, as_tensor, is_composite
from estimator_emb.spec.resolved import Feature, Table


def looked_up(tables: Sequence[Table]) -> list[Table]:
    """Returns `tables`, changed so that columns that look up integers read decimal strings."""

    def reading_strings(feature: Feature) -> Feature:
        to_ids = feature.integers_to_ids
        if to_ids is None:
            return feature
        return dataclasses.replace(feature, to_ids=lambda strings: to_ids(parsed(strings)))

    return [
        dataclasses.replace(table, features=tuple(map(reading_strings, table.features)))
        for table in tables
    ]


def parsed(strings: tf.Tensor) -> tf.Tensor:
    """Returns the integers in strings from `written`, as int64."""
    return tf.strings.to_number(strings, tf.int64)


def as_strings(tables: Sequence[Table], features: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns `features` with decimal strings for the integers that columns look up.

    Raises ValueError, as TensorFlow does, if a column of strings gets integers.
    """
    texts = dict(features)
    for table in tables:
        for feature in table.features:
            if feature.to_ids is None or feature.key not in features:
                continue
            value = as_tensor(features[feature.key])
            if feature.integers_to_ids is None:
                if value.dtype.is_integer:
                    raise ValueError(
                        f"Feature {feature.key} of table {table.name}: its column looks up "
                        f"strings, so its values must be strings; got {value.dtype.name}. If they "
                        "are ids, make the column of categorical_column_with_identity."
                    )
                continue
            if not value.dtype.is_integer:
                raise ValueError(
                    f"Feature {feature.key} of table {table.name}: its column looks up integers, "
                    f"so its values must be int32 or int64; got {value.dtype.name}."
                )
            texts[feature.key] = written(value)
    return texts


def as_matrices(tables: Sequence[Table], features: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns `features` with the columns' dense [batch, 1, ..., n] tensors as [batch, n]."""
    matrices = dict(features)
    for feature in (feature for table in tables for feature in table.features):
        if feature.column_name is None or feature.max_sequence_length:
            continue
        for key in (feature.key, feature.weight_key):
            if key is None or key not in features:
                continue
            value = as_tensor(features[key])
            inner = value.shape[1:-1]
            if inner.rank and set(inner.as_list()) == {1} and not is_composite(value):
                matrices[key] = tf.squeeze(value, list(range(1, 1 + inner.rank)))
    return matrices


def written(value: Any) -> Any:
    """Returns integers as decimal strings. In a dense tensor, `PADDING_ID` becomes ''."""
    if isinstance(value, tf.SparseTensor):
        return value.with_values(tf.strings.as_string(value.values))
    if isinstance(value, tf.RaggedTensor):
        return value.with_flat_values(tf.strings.as_string(value.flat_values))
    return tf.where(tf.equal(value, PADDING_ID), "", tf.strings.as_string(value))
