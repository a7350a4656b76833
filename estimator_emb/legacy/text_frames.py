"""Lets `pandas_input_fn` take text columns of pandas 3.

These columns have a new type. TensorFlow knows only `object`, the type that they had before.
"""

from collections.abc import Callable
from typing import Any

from estimator_emb.compat.internals.estimators import feeding_functions
from estimator_emb.compat.internals.patches import Changes


def take_text(changes: Changes) -> None:
    """Makes `pandas_input_fn` take text columns. `changes` can undo it."""
    changes.wrap(feeding_functions, "_enqueue_data", _taking_text)


def _taking_text(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda data, *args, **kwargs: original(_with_objects(data), *args, **kwargs)


def _with_objects(data: Any) -> Any:
    """Returns a DataFrame with its text columns and text index converted to type `object`."""
    if not hasattr(data, "columns"):
        return data
    text = [name for name, dtype in data.dtypes.items() if _is_text(dtype)]
    data = data.astype(dict.fromkeys(text, object)) if text else data
    if _is_text(data.index.dtype):
        data = data.set_axis(data.index.astype(object), axis=0)
    return data


def _is_text(dtype: Any) -> bool:
    return type(dtype).__name__ == "StringDtype"
