# SPDX-License-Identifier: Apache-2.0
"""`sequence_input_layer`, which TensorFlow 1 had in `tf.contrib.feature_column`."""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.feature_column import feature_column as fc_v1


def sequence_input_layer(
    features: Mapping[str, Any],
    feature_columns: Any,
    weight_collections: Iterable[str] | None = None,
    trainable: bool = True,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The columns' sequences side by side, to go into an RNN.

    Its variables are `sequence_input_layer/<column>_embedding/embedding_weights`. Columns come in
    the order of their names. `SequenceFeatures` is the same as a Keras layer, and takes shared
    columns too.

    Args:
      features: key -> feature.
      feature_columns: one sequence column or several, made by `embedding_column` of a
        `sequence_categorical_column_with_*`, or TensorFlow's own sequence columns.
      weight_collections: graph collections that variables of TensorFlow's own columns are added to.
      trainable: whether such variables are trainable.

    Returns:
      float32 [batch, T, D], D the sum of the columns' dimensions, and int64 [batch], the number of
      positions of each sample.

    Raises:
      ValueError: no column is given, or one is no sequence column.
      tf.errors.InvalidArgumentError: when the step runs, if the lengths of the columns differ.

    Source: `sequence_input_layer` of tensorflow/contrib/feature_column, TF 1.15.
    """
    columns = fc_v1._normalize_feature_columns(feature_columns)
    for column in columns:
        if not hasattr(column, "_get_sequence_dense_tensor"):
            raise ValueError(
                "sequence_input_layer: every column must be a sequence column that is not shared; "
                f"got {column!r}. SequenceFeatures takes shared columns."
            )
    with tf.compat.v1.variable_scope(None, default_name="sequence_input_layer"):
        builder = fc_v1._LazyBuilder(features)
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
                one, lengths[0], message="sequence_input_layer: the lengths of the columns differ."
            )
            for one in lengths[1:]
        ]
        with tf.control_dependencies(same):
            return tf.concat(parts, axis=2), tf.identity(lengths[0])
