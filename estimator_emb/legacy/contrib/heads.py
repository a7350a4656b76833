"""Heads of `tf.contrib.estimator`, made by tensorflow-estimator's heads, and `forward_features`.

Source: tensorflow_estimator/contrib/estimator/python/estimator, 1.15.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.estimators import (
    Estimator,
    PredictOutput,
    stock_binary_head,
    stock_multi_class_head,
    stock_regression_head,
)

_MEAN = tf.compat.v1.losses.Reduction.SUM_OVER_BATCH_SIZE


def multi_class_head(
    n_classes: int,
    weight_column: Any = None,
    label_vocabulary: Any = None,
    loss_reduction: str = _MEAN,
    loss_fn: Any = None,
    name: str | None = None,
) -> Any:
    """Returns a head for labels of `n_classes` > 2 classes, with softmax cross entropy."""
    return stock_multi_class_head(
        n_classes, weight_column, label_vocabulary, loss_reduction, loss_fn, name
    )


def binary_classification_head(
    weight_column: Any = None,
    thresholds: Any = None,
    label_vocabulary: Any = None,
    loss_reduction: str = _MEAN,
    loss_fn: Any = None,
    name: str | None = None,
) -> Any:
    """Returns a head for labels of two classes, with sigmoid cross entropy."""
    return stock_binary_head(
        weight_column, thresholds, label_vocabulary, loss_reduction, loss_fn, name
    )


def regression_head(
    weight_column: Any = None,
    label_dimension: int = 1,
    loss_reduction: str = _MEAN,
    loss_fn: Any = None,
    inverse_link_fn: Any = None,
    name: str | None = None,
) -> Any:
    """Returns a head for numeric labels, with the squared error."""
    return stock_regression_head(
        weight_column, label_dimension, loss_reduction, loss_fn, inverse_link_fn, name
    )


def logistic_regression_head(
    weight_column: Any = None, loss_reduction: str = _MEAN, name: str | None = None
) -> Any:
    """Returns a head for numeric labels from 0 to 1, with sigmoid cross entropy."""

    def loss_fn(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    return regression_head(weight_column, 1, loss_reduction, loss_fn, tf.sigmoid, name)


def forward_features(
    estimator: Any, keys: Any = None, sparse_default_values: Mapping[str, Any] | None = None
) -> Any:
    """Returns an `Estimator` like `estimator` that adds features to its predictions.

    Args:
      estimator: an `Estimator` that predicts a dict.
      keys: keys of the features, a string or several. None for all.
      sparse_default_values: key of a sparse feature -> the value of its empty places.

    Raises:
      ValueError: a key is not among the features, or a feature is not a tensor.
    """
    named = [keys] if isinstance(keys, str) else keys
    defaults = dict(sparse_default_values or {})

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        spec = estimator.model_fn(features, labels, mode, config)
        if spec.predictions is None:
            return spec
        if not isinstance(spec.predictions, Mapping):
            raise ValueError(
                "forward_features: predictions must be a dict; got "
                f"{type(spec.predictions).__name__}."
            )
        given = _chosen(features, named, defaults)
        spec = spec._replace(predictions={**spec.predictions, **given})
        outputs = dict(spec.export_outputs or {})
        if "predict" in outputs:
            served = PredictOutput({**outputs["predict"].outputs, **given})
            default = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
            outputs |= {"predict": served, default: served}
            spec = spec._replace(export_outputs=outputs)
        return spec

    return Estimator(model_fn=model_fn, model_dir=estimator.model_dir, config=estimator.config)


def _chosen(features: Any, keys: Iterable[str] | None, defaults: dict[str, Any]) -> dict[str, Any]:
    chosen = {}
    for key in features if keys is None else keys:
        if key not in features:
            raise ValueError(
                f"keys should be exist in features. Key '{key}' is not in features dict. features "
                f"dict has following keys: {sorted(features)}."
            )
        feature = features[key]
        if key in defaults and isinstance(feature, tf.SparseTensor):
            feature = tf.sparse.to_dense(feature, defaults[key])
        if not isinstance(feature, tf.Tensor):
            raise ValueError(
                f"Feature ({key}) should be a Tensor. Please use keys argument of "
                "forward_features to filter unwanted features, or add key to argument "
                f"`sparse_default_values`. Type of features[{key}] is {type(feature)}."
            )
        chosen[key] = feature
    return chosen
