"""Calls the program's own functions of the step: learning rates and the gradient multiplier.

Wrong results of such a function are reported with the names of the function and its table.
"""

import inspect
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_emb.optimizers._parameters import check_finite, check_not_negative

MULTIPLIER = "EmbeddingConfigSpec: experimental_gradient_multiplier_fn"


def multiplier(function: Callable[..., Any], step: tf.Tensor) -> tf.Tensor:
    """Returns the factor of all gradients, like `rate`, but the value may be negative."""
    return rate(MULTIPLIER, function, step, may_be_negative=True)


def name_of(function: Any) -> str:
    """Returns the name of a function for messages, with its file and line if known."""
    inner = inspect.unwrap(function)
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    name = name.rpartition("<locals>.")[2]
    code = getattr(inner, "__code__", None)
    if code is None:
        return name
    return f"{name} ({os.path.basename(code.co_filename)}, line {code.co_firstlineno})"


def rate(
    owner: str, function: Callable[..., Any], *step: tf.Tensor, may_be_negative: bool = False
) -> tf.Tensor:
    """Returns the learning rate that a function computes, as a float32 scalar.

    `owner` names the function and its owner in messages. `step` is the global step or nothing.
    Raises TypeError if the result is None or not numeric. Raises ValueError if it is not a scalar,
    or known to be negative, NaN or infinite.
    """
    owner = f"{owner} {name_of(function)}"
    value = function(*step)
    if value is None:
        raise TypeError(
            f"{owner} returned None; it must return a number or a scalar tensor. Is its `return` "
            "missing?"
        )
    expected = f"{owner} must return a number or a scalar tensor"
    try:
        tensor = tf.convert_to_tensor(value)
    except (TypeError, ValueError):
        raise TypeError(f"{expected}; got {value!r}.") from None
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer):
        raise TypeError(f"{expected}; got a {tensor.dtype.name}: {value!r}.")
    if tensor.shape.rank is None:
        tensor = tf.ensure_shape(tensor, [])
    if tensor.shape.rank != 0:
        raise ValueError(f"{expected}; got the shape {tensor.shape}.")
    known = tf.get_static_value(tensor)
    if known is not None:
        check_finite(f"{owner}: its value", known)
        if not may_be_negative:
            check_not_negative(f"{owner}: its value", float(str(known)))  # -0.1, not -0.10000000149
    return tf.cast(tensor, tf.float32)
