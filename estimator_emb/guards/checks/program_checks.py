"""Checks early the arguments that a program passes to a TPUEstimator.

tensorflow-estimator would accept most mistakes, and fail later or never.
"""

import inspect
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.compat.internals.graphs import fn_args, has_kwargs
from estimator_emb.engine.tables.functions import name_of
from estimator_emb.reporting.suggestions import suggestion

BATCH_SIZES = {
    ModeKeys.TRAIN: "train_batch_size",
    ModeKeys.EVAL: "eval_batch_size",
    ModeKeys.PREDICT: "predict_batch_size",
}
"""Mode -> `TPUEstimator`'s argument for the batch size."""

_INPUT_ARGUMENTS = ("params", "config", "mode", "input_context")
_MODEL_ARGUMENTS = ("features", "labels", "mode", "params", "config", "self")
DATASETS = (tf.data.Dataset, tf.compat.v1.data.Dataset)


class Params(dict):
    """A program's `params`, with errors that name a missing key or a bad batch size."""

    mode: str | None = None

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if key == "batch_size" and self.mode in BATCH_SIZES:
            check_batch_sizes(**{BATCH_SIZES[self.mode]: value})
        return value

    def __missing__(self, key: Any) -> Any:
        if key == "batch_size" and self.mode in BATCH_SIZES:
            raise KeyError(
                f"params has no 'batch_size' in mode {self.mode!r}: TPUEstimator was given no "
                f"{BATCH_SIZES[self.mode]}."
            )
        advice = suggestion(key, self)
        raise KeyError(f"params has no {key!r}; it has {sorted(map(str, self))}.{advice}")


def checked_params(params: Any) -> Any:
    """Returns the `params` of a program. A dict becomes `Params`."""
    if type(params) is dict:
        return Params(params)
    if not isinstance(params, (Mapping, type(None))) and not hasattr(params, "set_hparam"):
        raise TypeError(f"TPUEstimator: params must be a dict; got {params!r}.")
    return params


def check_batch_sizes(**sizes: Any) -> None:
    """Raises TypeError or ValueError unless all batch sizes are positive integers or None."""
    for name, size in sizes.items():
        if size is None:
            continue
        if not isinstance(size, numbers.Integral) or isinstance(size, bool):
            raise TypeError(f"TPUEstimator: {name} must be int, got {type(size)}: {size!r}.")
        if size < 1:
            raise ValueError(f"TPUEstimator: {name} must be positive, got {size!r}.")


def is_batch_size(size: Any) -> bool:
    """Returns whether `size` is a valid batch size. Off a TPU, invalid sizes may be unused."""
    try:
        check_batch_sizes(size=size)
    except (TypeError, ValueError):
        return False
    return size is not None


def checked_callable(model_fn: Any) -> Callable[..., Any]:
    """Returns `model_fn`. Raises an error if it does not take a model_fn's arguments."""
    if model_fn is None:
        raise ValueError("model_fn must be provided to Estimator.")
    if not callable(model_fn):
        raise TypeError(f"TPUEstimator: model_fn must be a function; got {model_fn!r}.")
    owner = f"model_fn ({name_of(model_fn)})"
    arguments = fn_args(model_fn)
    if "features" not in arguments:
        raise ValueError(f"{owner} must include features argument; it takes {list(arguments)}.")
    unknown = [name for name in arguments if name not in _MODEL_ARGUMENTS]
    if unknown:
        close = suggestion(unknown[0], _MODEL_ARGUMENTS[:-1])
        raise ValueError(
            f"{owner} has following not expected args: {unknown}. A model_fn takes features, "
            "labels, mode, params and config; give it other values by params, or by "
            f"functools.partial.{close}"
        )
    return model_fn


def checked_input_fn(input_fn: Any, returned: Callable[[str, Any], Any]) -> Callable[..., Any]:
    """Returns an input_fn that passes its name and its value to `returned`.

    Raises TypeError if `input_fn` is not callable or has an unknown required argument, and
    ValueError if it does not take `params`.
    """
    check_is_function(input_fn)
    owner = f"input_fn ({name_of(input_fn)})"
    arguments = fn_args(input_fn)
    takes_any = has_kwargs(input_fn)
    if "params" not in arguments and not takes_any:
        raise ValueError(
            f"{owner} does not include params argument, required by TPUEstimator to pass batch "
            'size as params["batch_size"].'
        )
    for name in _required(input_fn):
        if name not in _INPUT_ARGUMENTS:
            raise TypeError(
                f"{owner} takes the argument {name!r}, which TPUEstimator does not give: it gives "
                f"params, config, mode and input_context. Give it a value by functools.partial."
            )

    def checked(**kwargs: Any) -> Any:
        return returned(owner, input_fn(**kwargs))

    return takes(checked, arguments)


def check_is_function(input_fn: Any) -> None:
    """Raises TypeError if an input_fn is not a function."""
    if isinstance(input_fn, DATASETS) or not callable(input_fn):
        got = "a Dataset" if isinstance(input_fn, DATASETS) else repr(input_fn)
        raise TypeError(
            "input_fn must be a function that returns a Dataset, or features and labels; got "
            f"{got}. Give the function itself, and make the Dataset inside of it."
        )


def _required(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind in kinds and parameter.default is parameter.empty
    ]


def takes(function: Callable[..., Any], arguments: Any) -> Callable[..., Any]:
    """Sets the signature of `function` to these arguments, for tensorflow-estimator to read."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in arguments]
    )
    return function
