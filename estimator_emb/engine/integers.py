"""Looks integers up in columns with a vocabulary of integers, hash buckets or a default value.

Off a TPU, and in a SavedModel, such a column turns the integers of the batch into ids. On a TPU,
emulated or not, it does not: the integers that reach a table are its ids, and input_fn has looked
them up.

The functions below write the integers as strings, which are then read as for any column: those not
in the vocabulary are left out, but keep their position in a sequence.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.engine.inputs import PADDING_ID, as_tensor
from estimator_emb.spec.resolved import Feature, Table


def looked_up(tables: Sequence[Table]) -> list[Table]:
    """Returns `tables` whose columns that look integers up read them as decimal strings."""

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
    """Returns what `written` has written, as int64."""
    return tf.strings.to_number(strings, tf.int64)


def as_strings(tables: Sequence[Table], features: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns `features` with decimal strings for the integers that columns look up."""
    texts = dict(features)
    for table in tables:
        for feature in table.features:
            if feature.integers_to_ids is None or feature.key not in features:
                continue
            value = as_tensor(features[feature.key])
            if not value.dtype.is_integer:
                raise ValueError(
                    f"Feature {feature.key} of table {table.name}: its column looks up integers, "
                    f"so its values must be int32 or int64; got {value.dtype.name}."
                )
            texts[feature.key] = written(value)
    return texts


def written(value: Any) -> Any:
    """Returns integers as decimal strings; in a dense tensor '' for `PADDING_ID`."""
    if isinstance(value, tf.SparseTensor):
        return value.with_values(tf.strings.as_string(value.values))
    if isinstance(value, tf.RaggedTensor):
        return value.with_flat_values(tf.strings.as_string(value.flat_values))
    return tf.where(tf.equal(value, PADDING_ID), "", tf.strings.as_string(value))
