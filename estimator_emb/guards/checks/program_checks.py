"""Adapts the functions and arguments that a program passes to an estimator."""

import inspect
import numbers
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.compat.internals.graphs import fn_args
from estimator_emb.engine.tables.functions import name_of
from estimator_emb.reporting.suggestions import suggestion

BATCH_SIZES = {
    ModeKeys.TRAIN: "train_batch_size",
    ModeKeys.EVAL: "eval_batch_size",
    ModeKeys.PREDICT: "predict_batch_size",
}
"""Mode -> `TPUEstimator`'s argument for the batch size."""

DATASETS = (tf.data.Dataset, tf.compat.v1.data.Dataset)


class Params(dict):
    """A program's `params`, with an error that names a missing key."""

    mode: str | None = None

    def __missing__(self, key: Any) -> Any:
        if key == "batch_size" and self.mode in BATCH_SIZES:
            raise KeyError(
                f"params has no 'batch_size' in mode {self.mode!r}: TPUEstimator was given no "
                f"{BATCH_SIZES[self.mode]}."
            )
        advice = suggestion(key, self)
        raise KeyError(f"params has no {key!r}; it has {sorted(map(str, self))}.{advice}")


def is_batch_size(size: Any) -> bool:
    """Returns whether `size` is a valid batch size. Off a TPU, invalid sizes may be unused."""
    return isinstance(size, numbers.Integral) and int(size) > 0


def listed(name: str, given: Any) -> Any:
    """Returns a list of what an iterator yields, because our own hooks are added to it."""
    try:
        iter(given or ())
    except TypeError as error:
        raise TypeError(f"{error}: {name} must be a list; got {given!r}.") from None
    return list(given) if isinstance(given, Iterator) else given


def checked_input_fn(input_fn: Any, returned: Callable[[str, Any], Any]) -> Callable[..., Any]:
    """Returns an input_fn that passes its name and its value to `returned`.

    Raises ValueError if `input_fn` does not take `params`, and names it: tensorflow-estimator would
    name our wrapper.
    """
    check_is_function(input_fn)
    owner = f"input_fn ({name_of(input_fn)})"
    arguments = fn_args(input_fn)
    if "params" not in arguments:
        raise ValueError(
            f"{owner} does not include params argument, required by TPUEstimator to pass batch "
            'size as params["batch_size"].'
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


def takes(function: Callable[..., Any], arguments: Any) -> Callable[..., Any]:
    """Sets the signature of `function` to these arguments, for tensorflow-estimator to read."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in arguments]
    )
    return function
