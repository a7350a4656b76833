"""Finds how the categorical column of an embedding column converts values to ids."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.column_classes import (
    BucketizedColumn,
    CrossedColumn,
    FeatureTransformationCache,
)


@dataclasses.dataclass(frozen=True)
class ColumnLookup:
    """Converts values [n] to a categorical column's int64 ids [n], with -1 for values left out."""

    column: Any

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        positions = tf.range(tf.size(values, out_type=tf.int64))
        one_per_row = tf.SparseTensor(
            tf.stack([positions, tf.zeros_like(positions)], axis=1),
            values,
            tf.stack([tf.size(values, out_type=tf.int64), tf.constant(1, tf.int64)]),
        )
        ids = self.column._transform_input_tensor(one_per_row).values
        default = getattr(self.column, "default_value", None) or 0
        # TensorFlow's columns leave out any id below 0.
        return tf.maximum(ids, -1) if default < -1 else ids


def string_lookup(categorical_column: Any) -> ColumnLookup | None:
    """Returns the lookup of string values, if the column takes strings."""
    column = without_wrappers(categorical_column)
    return ColumnLookup(column) if getattr(column, "dtype", None) == tf.string else None


def integer_lookup(categorical_column: Any) -> ColumnLookup | None:
    """Returns the lookup of integer values, unless the integers are ids."""
    column = without_wrappers(categorical_column)
    dtype = getattr(column, "dtype", None)
    if dtype is not None and dtype.is_integer:
        return ColumnLookup(column)
    has_default = getattr(column, "default_value", None) is not None
    return ColumnLookup(column) if dtype is None and has_default else None


def computed_ids(categorical_column: Any) -> Callable[[Any], Any] | None:
    """Returns a function from a batch's features to ids, unless input_fn gives the ids."""
    column = without_wrappers(categorical_column)
    if not isinstance(column, (BucketizedColumn, CrossedColumn)):
        return None

    def ids(features: Any) -> Any:
        found = column.get_sparse_tensors(FeatureTransformationCache(features), None).id_tensor
        if isinstance(column, CrossedColumn):
            return found
        # Each number falls in exactly one bucket, so ids can be dense. Weights may be dense then.
        width = column.source_column.variable_shape.num_elements()
        return tf.reshape(found.values, [-1, width])

    return ids


def without_wrappers(categorical_column: Any) -> Any:
    """Returns the column that computes ids, inside a weighted or sequence column."""
    while hasattr(categorical_column, "categorical_column"):
        categorical_column = categorical_column.categorical_column
    return categorical_column
