"""Functions that make sequence columns, and TensorFlow 1's contrib `sequence_input_layer`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.column_classes import LazyBuilder, normalize_feature_columns
from feature_columns.categorical import check_order


def sequence_categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: tf.DType = tf.string
) -> Any:
    """Makes a sequence column that hashes values to ids.

    Args:
      key: the feature's key; sparse or ragged, or dense [batch, positions].
      hash_bucket_size: the number of ids, at least 1.
      dtype: the type of the values: `tf.string`, or an integer type.

    Returns:
      A sequence column with ids in [0, hash_bucket_size).

    Raises:
      ValueError: `hash_bucket_size` is None or less than 1, or `dtype` neither string nor integer.
    """
    function = "sequence_categorical_column_with_hash_bucket"
    check_order(function, key, "hash_bucket_size", hash_bucket_size)
    return tf.feature_column.sequence_categorical_column_with_hash_bucket(
        key, hash_bucket_size, dtype
    )


def sequence_categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> Any:
    """Makes a sequence column of values that are already ids.

    Args:
      key: the feature's key; sparse or ragged, or dense [batch, positions], of any integer type.
      num_buckets: the number of ids, at least 1.
      default_value: as in `categorical_column_with_identity`.

    Returns:
      A sequence column with ids in [0, num_buckets).

    Raises:
      ValueError: `num_buckets` is less than 1, or `default_value` is out of range.
    """
    check_order("sequence_categorical_column_with_identity", key, "num_buckets", num_buckets)
    return tf.feature_column.sequence_categorical_column_with_identity(
        key, num_buckets, default_value
    )


def sequence_categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str,
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: tf.DType = tf.string,
) -> Any:
    """Makes a sequence column that converts values to their line numbers in a vocabulary file.

    Args:
      key: the feature's key; sparse or ragged, or dense [batch, positions].
      vocabulary_file: path of a text file with one value on each line.
      vocabulary_size: as in `categorical_column_with_vocabulary_file`.
      num_oov_buckets: as in `categorical_column_with_vocabulary_file`.
      default_value: as in `categorical_column_with_vocabulary_file`. With -1, which None means, an
        unknown value still takes a position, with an activation of zeros.
      dtype: the type of the values: `tf.string`, or an integer type.

    Returns:
      A sequence column with ids in [0, vocabulary_size + num_oov_buckets).

    Raises:
      ValueError: as in `categorical_column_with_vocabulary_file`.
    """
    return tf.feature_column.sequence_categorical_column_with_vocabulary_file(**locals())


def sequence_categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Sequence[Any],
    dtype: tf.DType | None = None,
    default_value: int = -1,
    num_oov_buckets: int = 0,
) -> Any:
    """Makes a sequence column that converts values to their positions in a list.

    Args:
      key: the feature's key; sparse or ragged, or dense [batch, positions].
      vocabulary_list: the values, all different: strings or integers.
      dtype: the type of the values. None takes the list's type.
      default_value: the id of unknown values. With -1, an unknown value still takes a position,
        with an activation of zeros.
      num_oov_buckets: as in `categorical_column_with_vocabulary_list`.

    Returns:
      A sequence column with ids in [0, len(vocabulary_list) + num_oov_buckets).

    Raises:
      ValueError: as in `categorical_column_with_vocabulary_list`.
    """
    function = "sequence_categorical_column_with_vocabulary_list"
    check_order(function, key, "vocabulary_list", vocabulary_list, "list")
    return tf.feature_column.sequence_categorical_column_with_vocabulary_list(
        key, vocabulary_list, dtype, default_value, num_oov_buckets
    )


def sequence_input_layer(
    features: Mapping[str, Any],
    feature_columns: Any,
    weight_collections: Iterable[str] | None = None,
    trainable: bool = True,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Concatenates sequence columns into the input of an RNN.

    Its variables are `sequence_input_layer/<column>_embedding/embedding_weights`. The columns are
    sorted by name. `SequenceFeatures` does the same as a Keras layer, also with shared columns.

    Args:
      features: key -> feature.
      feature_columns: one sequence column or several, made by `embedding_column` of a
        `sequence_categorical_column_with_*`, or TensorFlow's own sequence columns.
      weight_collections: extra graph collections for the variables of TensorFlow's columns.
      trainable: True, the default, makes such variables trainable.

    Returns:
      float32 [batch, T, D], D the sum of the columns' dimensions, and int64 [batch], the number of
      positions of each sample.

    Raises:
      ValueError: no column is given, or a column is not a sequence column.
      tf.errors.InvalidArgumentError: when the step runs, if the lengths of the columns differ.

    Source: `sequence_input_layer` of tensorflow/contrib/feature_column, TF 1.15.
    """
    columns = normalize_feature_columns(feature_columns)
    for column in columns:
        if not hasattr(column, "_get_sequence_dense_tensor"):
            raise ValueError(
                "sequence_input_layer: every column must be a sequence column that is not shared; "
                f"got {column!r}. SequenceFeatures takes shared columns."
            )
    with tf.compat.v1.variable_scope(None, default_name="sequence_input_layer"):
        builder = LazyBuilder(features)
        parts, lengths = [], []
        for column in sorted(columns, key=lambda column: column.name):
            with tf.compat.v1.variable_scope(None, default_name=column._var_scope_name):
                values, length = column._get_sequence_dense_tensor(
                    builder, weight_collections=weight_collections, trainable=trainable
                )
            size = column._variable_shape.num_elements()
            parts.append(tf.reshape(values, tf.concat([tf.shape(values)[:2], [size]], axis=0)))
            lengths.append(tf.cast(length, tf.int64))
        same = [
            tf.compat.v1.assert_equal(
                length,
                lengths[0],
                message="sequence_input_layer: the lengths of the columns differ.",
            )
            for length in lengths[1:]
        ]
        with tf.control_dependencies(same):
            return tf.concat(parts, axis=2), tf.identity(lengths[0])
