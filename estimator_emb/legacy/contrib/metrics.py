"""The metrics of `tf.contrib.metrics`. Their arguments have another order in `tf.metrics`.

`streaming_accuracy(predictions, labels)` is `tf.compat.v1.metrics.accuracy(labels, predictions)`,
and so on. Source: tensorflow/contrib/metrics/python/ops/metric_ops.py, TF 1.15.
"""

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_tf1 = tf.compat.v1

_REQUIRED = (
    "predictions labels values k normalizer num_classes threshold dim thresholds sensitivity "
    "specificity"
).split()
_DEFAULTS = dict.fromkeys(_REQUIRED, inspect.Parameter.empty) | {
    "num_thresholds": 200,
    "curve": "ROC",
}
"""Argument -> its default. All other arguments default to None."""
_COLLECTIONS = "metrics_collections updates_collections"
_LAST = f"{_COLLECTIONS} name"

_STREAMING = {
    f"predictions labels weights {_LAST}": "accuracy false_negatives false_positives "
    "mean_absolute_error mean_squared_error precision recall root_mean_squared_error "
    "true_negatives true_positives",
    f"values weights {_LAST}": "mean mean_tensor",
    f"values threshold weights {_LAST}": "percentage_less=percentage_below",
    f"predictions labels dim weights {_LAST}": "mean_cosine_distance",
    f"predictions labels num_classes weights {_LAST}": "mean_iou",
    f"predictions labels normalizer weights {_LAST}": "mean_relative_error",
    f"predictions labels thresholds weights {_LAST}": (
        "precision_at_thresholds recall_at_thresholds"
    ),
    f"predictions labels specificity weights num_thresholds {_LAST}": "sensitivity_at_specificity",
    f"predictions labels sensitivity weights num_thresholds {_LAST}": "specificity_at_sensitivity",
    f"predictions labels weights num_thresholds {_COLLECTIONS} curve name": "auc",
    f"predictions labels k weights {_LAST}": (
        "sparse_average_precision_at_k=average_precision_at_k"
    ),
    f"predictions labels k class_id weights {_LAST}": (
        "sparse_precision_at_k=precision_at_k sparse_recall_at_k=recall_at_k"
    ),
}
"""Arguments in the old order -> names in tf.contrib.metrics without 'streaming_'.

old=new if the name in tf.metrics differs.
"""


def _streaming(name: str, today: str, arguments: str) -> Callable[..., Any]:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature(
        [inspect.Parameter(one, kind, default=_DEFAULTS.get(one)) for one in arguments.split()]
    )

    def metric(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}{signature}: {error}") from None
        return getattr(_tf1.metrics, today)(**bound.arguments)

    metric.__name__ = metric.__qualname__ = name
    metric.__doc__ = f"Returns the value and the update of `tf.compat.v1.metrics.{today}`."
    metric.__signature__ = signature  # type: ignore[attr-defined]
    return metric


for _arguments, _names in _STREAMING.items():
    for _old, _, _new in (_name.partition("=") for _name in _names.split()):
        _old_name = f"streaming_{_old}"
        globals()[_old_name] = _streaming(_old_name, _new or _old, _arguments)


def streaming_recall_at_k(
    predictions: Any,
    labels: Any,
    k: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Any:
    """Returns the value and the update of recall at k.

    This is the weighted share of samples with a label among the k largest predictions. Predictions
    are float [batch, classes], labels are integers [batch], and weights are a scalar or [batch].
    """
    hits = tf.cast(tf.math.in_top_k(labels, predictions, k), tf.float32)
    return _tf1.metrics.mean(
        hits, weights, metrics_collections, updates_collections, name or f"recall_at_{k}"
    )


def accuracy(predictions: Any, labels: Any, weights: Any = None, name: str | None = None) -> Any:
    """Returns the weighted share of this batch's predictions that equal their labels.

    Source: tensorflow/contrib/metrics/python/metrics/classification.py, TF 1.15.
    """
    if not (labels.dtype.is_integer or labels.dtype in (tf.bool, tf.string)):
        raise ValueError(f"Labels should have bool, integer, or string dtype, not {labels.dtype!r}")
    if not labels.dtype.is_compatible_with(predictions.dtype):
        raise ValueError(
            "Dtypes of predictions and labels should match. Given: predictions "
            f"({predictions.dtype!r}) and labels ({labels.dtype!r})"
        )
    with tf.name_scope(name or "accuracy"):
        hits = tf.cast(tf.equal(predictions, labels), tf.float32)
        if weights is None:
            return tf.reduce_mean(hits)
        total = tf.reduce_sum(weights * tf.ones_like(hits))
        return tf.reduce_sum(hits * weights) / total


def aggregate_metrics(*value_update_tuples: Any) -> tuple[list[Any], list[Any]]:
    """Returns the values and the updates of metrics as two lists."""
    if not value_update_tuples:
        raise ValueError("Expected at least one value_tensor/update_op pair")
    values, updates = zip(*value_update_tuples, strict=True)
    return list(values), list(updates)


def aggregate_metric_map(names_to_tuples: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the values and the updates of metrics as two dictionaries by name."""
    values = {name: value for name, (value, _) in names_to_tuples.items()}
    return values, {name: update for name, (_, update) in names_to_tuples.items()}
