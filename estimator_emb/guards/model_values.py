"""Checks the EstimatorSpec that a model_fn returns."""

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.estimators import AnyTPUEstimatorSpec, EstimatorSpec, ModeKeys
from estimator_emb.engine.tables.functions import name_of
from estimator_emb.guards.guard import Call, Guard


class ModelValues(Guard):
    """Raises ValueError for a wrong type or mode, or predictions without a batch dimension."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours

    def after(self, spec: Any) -> Any:
        owner = f"model_fn ({name_of(self.call.model_fn)})"
        return _checked_spec(owner, spec, self.call.mode, self._needs_batch)

    def _needs_batch(self, name: str) -> bool:
        keys = self.call.predict_keys
        # Emulated cores always gather their predictions.
        return not self.call.exporting and (self.call.on_cores or keys is None or name in keys)


def _checked_spec(owner: str, returned: Any, mode: str, needs_batch: Callable[[str], bool]) -> Any:
    if not isinstance(returned, (EstimatorSpec, AnyTPUEstimatorSpec)):
        got = "None. Is its `return` missing?" if returned is None else f"{_short(returned)}."
        raise ValueError(
            f"model_fn should return an EstimatorSpec. In mode {mode!r}, {owner} returned {got}"
        )
    if returned.mode != mode:
        raise ValueError(
            f"{owner} was called with mode {mode!r}, and returned a {type(returned).__name__} of "
            f"mode {returned.mode!r}. Pass it the mode that model_fn is given."
        )
    if mode == ModeKeys.PREDICT:
        _check_predictions(owner, returned, needs_batch)
    metrics = getattr(returned, "eval_metrics", None)
    if mode == ModeKeys.EVAL and isinstance(metrics, (tuple, list)) and callable(metrics[0]):
        function, *tensors = metrics
        # The constructor sets fields that `_replace` would leave out.
        fields = {**returned._asdict(), "eval_metrics": (_checked_metrics(function), *tensors)}
        returned = type(returned)(**fields)
    return returned


def _check_predictions(owner: str, spec: Any, needs_batch: Callable[[str], bool]) -> None:
    predictions = spec.predictions
    by_name = predictions if isinstance(predictions, Mapping) else {"": predictions}
    for name, tensor in by_name.items():
        if getattr(getattr(tensor, "shape", None), "rank", None) == 0 and needs_batch(name):
            what = f"predictions[{name!r}]" if name else "predictions"
            raise ValueError(
                f"{owner}: {what} is a scalar, {tensor.name}; it must have the batch as its first "
                "dimension, for predict hands it out one example at a time."
            )


def _checked_metrics(function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*args: Any, **kwargs: Any) -> Any:
        metrics = function(*args, **kwargs)
        if not isinstance(metrics, Mapping):
            missing = " Is its `return` missing?" if metrics is None else ""
            raise TypeError(
                f"eval_metrics: metric_fn ({name_of(function)}) must return a dict of metrics; it "
                f"returned {_short(metrics)}.{missing}"
            )
        for name, metric in metrics.items():
            if not isinstance(name, str) or not _is_metric(metric):
                raise TypeError(
                    f"eval_metrics: metric_fn ({name_of(function)}) must return a dict of names "
                    "and pairs (value, update op), as functions of tf.compat.v1.metrics return, or "
                    f"Keras metrics; it returned {_short(metric)} for {name!r}."
                )
        return metrics

    with contextlib.suppress(TypeError, ValueError):  # Some C functions have no signature.
        checked.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return checked


def _is_metric(metric: Any) -> bool:
    if hasattr(metric, "update_state"):  # Of any Keras.
        return True
    pair = isinstance(metric, tuple) and len(metric) == 2
    return pair and all(tf.is_tensor(one) or isinstance(one, tf.Operation) for one in metric)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"a {type(value).__name__}"
