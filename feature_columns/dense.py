# SPDX-License-Identifier: Apache-2.0
"""Columns that give numbers to a model without an embedding table."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def numeric_column(
    key: str,
    shape: int | Sequence[int] = (1,),
    default_value: Any = None,
    dtype: tf.DType = tf.float32,
    normalizer_fn: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> Any:
    """Makes a column of numbers.

    Args:
      key: the feature's key.
      shape: shape of the feature in one sample.
      default_value: value that `tf.io.parse_example` gives an example without the feature: a
        number, or numbers of that shape. With None, every example must have the feature.
      dtype: a real type, which is converted to float32.
      normalizer_fn: function of the float32 feature that returns one of the same shape, or None.

    Returns:
      A dense column: float32 [batch, size of `shape`].

    Raises:
      TypeError: `shape` or `default_value` is of another type, or `normalizer_fn` not a function.
      ValueError: a dimension is not positive, or `dtype` cannot be converted to float32.
    """
    return tf.feature_column.numeric_column(key, shape, default_value, dtype, normalizer_fn)


def indicator_column(categorical_column: Any) -> Any:
    """Makes a column that counts how often each id occurs in a sample.

    Args:
      categorical_column: any categorical column; a weighted one sums weights in place of counting.

    Returns:
      A dense column: float32 [batch, number of ids].

    Raises:
      ValueError: the column is not categorical.
    """
    return tf.feature_column.indicator_column(categorical_column)
