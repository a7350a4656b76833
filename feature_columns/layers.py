"""Layers that turn columns into the input of a model."""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

DenseFeatures = tf.compat.v1.keras.layers.DenseFeatures
"""A Keras 2 layer that concatenates the values of dense columns.

`DenseFeatures(feature_columns)` creates the layer. `layer(features)` calls it with the features of
model_fn. Its variables are `dense_features/<column's name>/embedding_weights`.

Args:
  feature_columns: dense columns: embedding, numeric, bucketized and indicator columns.
  trainable: True, the default, makes the variables of columns outside the spec trainable.
  name: name of the layer; None for `dense_features`.

Returns:
  float32 [batch, D], where D is the sum of the columns' dimensions. The columns are sorted by name.

Raises:
  ValueError: a column is categorical, and needs an `embedding_column` or an `indicator_column`
    around it; or it is a sequence column, and `SequenceFeatures` takes it.
"""

SequenceFeatures = tf.keras.experimental.SequenceFeatures
"""A Keras 2 layer that concatenates the values of sequence columns.

`SequenceFeatures(feature_columns)` creates the layer. `layer(features)` calls it with the features
of model_fn. Its variables are `sequence_features/<column's name>/embedding_weights`.

Args:
  feature_columns: sequence embedding columns, including shared columns.
  trainable: True, the default, makes the variables of columns outside the spec trainable.
  name: name of the layer; None for `sequence_features`.

Returns:
  float32 [batch, T, D] and int64 [batch]. T is the columns' `max_sequence_length`, and D the sum of
  their dimensions. The columns are sorted by name. The second tensor is the number of positions of
  each sample.

Raises:
  ValueError: a column is not a sequence column.
  tf.errors.InvalidArgumentError: when the step runs, if the lengths of the columns differ.
"""


def input_layer(
    features: Mapping[str, Any],
    feature_columns: Any,
    weight_collections: Iterable[str] | None = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
    cols_to_output_tensors: dict[Any, Any] | None = None,
) -> tf.Tensor:
    """Concatenates the values of dense columns.

    Its variables are `input_layer/<column's name>/embedding_weights`. `DenseFeatures` is the same
    function as a Keras layer.

    Args:
      features: key -> feature, as model_fn gets them.
      feature_columns: dense columns: embedding, numeric, bucketized and indicator columns.
      weight_collections: extra graph collections for the variables of columns outside the spec, or
        None.
      trainable: True, the default, makes such variables trainable.
      cols_to_vars: a dict that is filled: column -> list of its variables.
      cols_to_output_tensors: a dict that is filled: column -> its part of the result.

    Returns:
      float32 [batch, D], D the sum of the columns' dimensions, with the columns sorted by name.

    Raises:
      ValueError: a column is categorical, or a sequence.
    """
    return tf.compat.v1.feature_column.input_layer(**locals())


def linear_model(
    features: Mapping[str, Any],
    feature_columns: Any,
    units: int = 1,
    sparse_combiner: str = "sum",
    weight_collections: Iterable[str] | None = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
) -> tf.Tensor:
    """Computes a linear model of columns, with a bias.

    Its weights are variables of the model, `linear_model/<column's name>/weights`. The program's
    own optimizer trains them.

    Args:
      features: key -> feature, as model_fn gets them.
      feature_columns: dense or categorical columns.
      units: the number of results for each sample.
      sparse_combiner: how the weights of a categorical column's values are combined: 'sum', 'mean'
        or 'sqrtn'.
      weight_collections: extra graph collections for the variables, or None.
      trainable: True, the default, makes them trainable.
      cols_to_vars: a dict that is filled: column -> list of its variables, and 'bias' -> the bias.

    Returns:
      float32 [batch, units].

    Raises:
      ValueError: a column is neither dense nor categorical.
    """
    return tf.compat.v1.feature_column.linear_model(**locals())


def make_parse_example_spec(feature_columns: Iterable[Any]) -> dict[str, Any]:
    """Returns the spec that `tf.io.parse_example` needs to read the features of columns.

    Args:
      feature_columns: columns of any kind.

    Returns:
      {key: `tf.io.FixedLenFeature` or `tf.io.VarLenFeature`}, weights included.

    Raises:
      ValueError: two columns read the same key differently, or an object is not a column.
    """
    spec: dict[str, Any] = tf.compat.v1.feature_column.make_parse_example_spec(feature_columns)
    return spec
