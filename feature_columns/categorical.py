"""Functions that make categorical columns. A categorical column converts values to ids.

A feature may be a dense tensor, a `tf.SparseTensor` or a `tf.RaggedTensor`, with any number of
values for a sample. In a dense tensor, the integer -1 and the string '' mean a missing value.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def check_order(function: str, key: Any, name: str, value: Any, kind: str = "number") -> None:
    """Raises TypeError if a column's key and its second argument seem to be swapped."""
    if isinstance(value, str) and (kind == "number" or not isinstance(key, str)):
        raise TypeError(
            f"{function}: key must be a string and {name} a {kind}; got {key!r} and {value!r}, "
            "perhaps swapped: the key comes first."
        )


def categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: tf.DType = tf.string
) -> Any:
    """Makes a column that hashes values to ids.

    Different values may share an id. Integers are hashed as decimal strings.

    Args:
      key: the feature's key.
      hash_bucket_size: the number of ids, at least 1.
      dtype: the type of the values: `tf.string`, or an integer type.

    Returns:
      A categorical column with ids in [0, hash_bucket_size).

    Raises:
      ValueError: `hash_bucket_size` is None or less than 1, or `dtype` neither string nor integer.
    """
    check_order("categorical_column_with_hash_bucket", key, "hash_bucket_size", hash_bucket_size)
    return tf.feature_column.categorical_column_with_hash_bucket(key, hash_bucket_size, dtype)


def categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> Any:
    """Makes a column of values that are already ids.

    Args:
      key: the key of a feature of any integer type.
      num_buckets: the number of ids, at least 1.
      default_value: the id, in [0, num_buckets), of values outside that range. With None, such a
        value fails the step with an error that names the feature and the value.

    Returns:
      A categorical column with ids in [0, num_buckets).

    Raises:
      ValueError: `num_buckets` is less than 1, or `default_value` is out of range.
    """
    check_order("categorical_column_with_identity", key, "num_buckets", num_buckets)
    return tf.feature_column.categorical_column_with_identity(key, num_buckets, default_value)


def categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str,
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: tf.DType = tf.string,
) -> Any:
    """Makes a column that converts values to their line numbers in a vocabulary file.

    As in TensorFlow 1, `num_oov_buckets` comes before `default_value` and `dtype`.

    Args:
      key: the feature's key.
      vocabulary_file: path of a text file with one value on each line.
      vocabulary_size: the number of lines to use, at least 1. The file must not be shorter. None
        means all lines.
      num_oov_buckets: number of ids after the vocabulary. Unknown values are hashed to these ids.
      default_value: the id of unknown values if `num_oov_buckets` is 0. -1, which None means,
        leaves an unknown value out.
      dtype: the type of the values: `tf.string`, or an integer type.

    Returns:
      A categorical column with ids in [0, vocabulary_size + num_oov_buckets).

    Raises:
      ValueError: the file is not given or does not exist, `vocabulary_size` is less than 1,
        `num_oov_buckets` is negative, `num_oov_buckets` and `default_value` are both given, or
        `dtype` is neither string nor integer.
    """
    return tf.compat.v1.feature_column.categorical_column_with_vocabulary_file(**locals())


def categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Sequence[Any],
    dtype: tf.DType | None = None,
    default_value: int = -1,
    num_oov_buckets: int = 0,
) -> Any:
    """Makes a column that converts values to their positions in a list.

    Args:
      key: the feature's key.
      vocabulary_list: the values, all different: strings or integers.
      dtype: the type of the values. None takes the list's type.
      default_value: the id of unknown values. -1 leaves an unknown value out.
      num_oov_buckets: number of ids after the vocabulary. Unknown values are hashed to these ids.
        It must be 0 if `default_value` is given.

    Returns:
      A categorical column with ids in [0, len(vocabulary_list) + num_oov_buckets).

    Raises:
      ValueError: the list is empty, holds a value twice or is of another kind than `dtype`,
        `num_oov_buckets` is negative, or `num_oov_buckets` and `default_value` are both given.
    """
    function = "categorical_column_with_vocabulary_list"
    check_order(function, key, "vocabulary_list", vocabulary_list, "list")
    return tf.feature_column.categorical_column_with_vocabulary_list(
        key, vocabulary_list, dtype, default_value, num_oov_buckets
    )


def crossed_column(keys: Sequence[Any], hash_bucket_size: int, hash_key: int | None = None) -> Any:
    """Makes a column that hashes combinations of several features' values to ids.

    On a TPU, an `EmbeddingConfigSpec` cannot give this column a table, because the column reads
    several features. Use it with `linear_model`, or in `indicator_column`.

    Args:
      keys: at least two, each the key of a string feature or a categorical column. Give a hashed
        column's key instead of the column, because values are hashed once.
      hash_bucket_size: the number of ids, at least 1.
      hash_key: seed of the hash. None means TensorFlow's own seed.

    Returns:
      A categorical column with ids in [0, hash_bucket_size).

    Raises:
      ValueError: there are fewer than two keys, a key is neither a string nor a categorical column,
        a key is a hashed column, or `hash_bucket_size` is less than 1.
    """
    return tf.feature_column.crossed_column(keys, hash_bucket_size, hash_key)


def bucketized_column(source_column: Any, boundaries: Sequence[float]) -> Any:
    """Makes a column that converts numbers to ids of intervals.

    Boundaries (0, 1) make three intervals: below 0, from 0 to below 1, and 1 or more.

    Args:
      source_column: a `numeric_column` of shape (n,).
      boundaries: list or tuple of numbers, ascending.

    Returns:
      A column that is both categorical, with ids in [0, n * (len(boundaries) + 1)), and dense:
      float32 [batch, n * (len(boundaries) + 1)], of zeros and ones.

    Raises:
      ValueError: the source is not a numeric column or has several dimensions, or the boundaries
        are empty, not ascending, or neither list nor tuple.
    """
    return tf.feature_column.bucketized_column(source_column, boundaries)


def weighted_categorical_column(
    categorical_column: Any, weight_feature_key: str, dtype: tf.DType = tf.float32
) -> Any:
    """Adds weights to the values of a categorical column. The table's combiner applies them.

    Args:
      categorical_column: any categorical column that is not a sequence.
      weight_feature_key: key of the feature with the weights: dense, sparse or ragged like the
        values, with one weight for each value.
      dtype: type of the weights, convertible to float.

    Returns:
      A categorical column with the ids of `categorical_column`.

    Raises:
      ValueError: `dtype` cannot be converted to float.
    """
    return tf.feature_column.weighted_categorical_column(**locals())
