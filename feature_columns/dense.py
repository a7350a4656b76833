"""Functions that make dense columns, with or without an embedding table."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compat.v1.tpu import experimental as columns


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
      normalizer_fn: function from the float32 feature to a tensor of the same shape, or None.

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
      categorical_column: any categorical column. A weighted column sums weights instead.

    Returns:
      A dense column: float32 [batch, number of ids].

    Raises:
      ValueError: the column is not categorical.
    """
    return tf.feature_column.indicator_column(categorical_column)


def embedding_column(
    categorical_column: Any,
    dimension: int,
    combiner: str = "mean",
    initializer: Callable[..., Any] | None = None,
    max_sequence_length: int = 0,
    learning_rate_fn: Callable[[tf.Tensor], Any] | None = None,
    embedding_lookup_device: str | None = None,
    tensor_core_shape: Sequence[int | None] | None = None,
    use_safe_embedding_lookup: bool = True,
) -> Any:
    """Makes a column with its own embedding table. The spec's optimizer trains the table.

    Args:
      categorical_column: a categorical column. Its number of ids is the number of rows of the
        table. On a TPU, input_fn gives the ids, so `bucketized_column` and `crossed_column` are
        not allowed.
      dimension: the length of a row, at least 1.
      combiner: how the rows of a sample are combined: 'sum'; 'mean', the sum divided by the sum of
        the weights; or 'sqrtn', the sum divided by the square root of the sum of squared weights.
        The rows of a sequence are not combined.
      initializer: function that returns the initial table for a shape and a dtype. None means a
        truncated normal distribution of mean 0 and standard deviation 1 / sqrt(dimension).
      max_sequence_length: for a sequence column, the number of positions. Longer sequences are cut,
        and shorter sequences are padded with zeros. 0 for any other column.
      learning_rate_fn: function of the global step that returns the learning rate of this table, a
        number or a float32 scalar. None means the optimizer's rate.
      embedding_lookup_device: 'tpu_embedding_core', which None means; 'tpu_tensor_core' for a
        variable of the model that the model's own optimizer trains; or 'cpu' in serving.
      tensor_core_shape: for 'tpu_tensor_core', [None, n], with n the number of values of a sample.
      use_safe_embedding_lookup: False skips a lookup's checks in exports and for tables on the
        tensor core.

    Returns:
      A dense column. Its activation is float32 [batch, dimension], with zeros for a sample without
      values. A sequence column's activation is [batch, max_sequence_length, dimension].

    Raises:
      TypeError: `categorical_column` is not categorical.
      ValueError: `dimension` is less than 1, `initializer` is not a function, `max_sequence_length`
        is given for a column that is not a sequence, or is 0 for a sequence column, or the lookup
        device is unknown or conflicts with the other arguments.
    """
    return columns.embedding_column(**locals())


def shared_embedding_columns(
    categorical_columns: Sequence[Any],
    dimension: int,
    combiner: str = "mean",
    initializer: Callable[..., Any] | None = None,
    shared_embedding_collection_name: str | None = None,
    max_sequence_lengths: Sequence[int] | None = None,
    learning_rate_fn: Callable[[tf.Tensor], Any] | None = None,
    embedding_lookup_device: str | None = None,
    tensor_core_shape: Sequence[int | None] | None = None,
    use_safe_embedding_lookup: bool = True,
) -> list[Any]:
    """Makes columns that share one table.

    Args:
      categorical_columns: as in `embedding_column`, sequences included, all with the same number
        of ids.
      dimension: as in `embedding_column`.
      combiner: as in `embedding_column`.
      initializer: as in `embedding_column`.
      shared_embedding_collection_name: name of the table. None joins the sorted names of the
        categorical columns and 'shared_embedding' with '_'.
      max_sequence_lengths: the `max_sequence_length` of each column. None means 0 for every column.
      learning_rate_fn: as in `embedding_column`.
      embedding_lookup_device: as in `embedding_column`.
      tensor_core_shape: as in `embedding_column`.
      use_safe_embedding_lookup: as in `embedding_column`.

    Returns:
      A list of dense columns, in the order of `categorical_columns`, with activations as in
      `embedding_column`.

    Raises:
      TypeError: a column is not categorical.
      ValueError: as in `embedding_column`; or the columns have different numbers of ids, or
        `max_sequence_lengths` has another length than `categorical_columns`.
    """
    shared: list[Any] = columns.shared_embedding_columns(**locals())
    return shared
