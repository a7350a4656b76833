"""Lets a program's subclasses of Keras classes override methods as in TensorFlow 1.15.

Keras calls some methods with more arguments than TensorFlow 1.15 did. An override gets only the
arguments that it takes.
"""

import contextvars
import functools
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.patches import Changes

_ADDED: tuple[tuple[Any, str, str], ...] = (
    (tf.keras.layers.BatchNormalization, "mask", "_moments _calculate_mean_and_var"),
    (tf.keras.layers.BatchNormalization, "mask", "_fused_batch_norm"),
    (tf.keras.layers.Attention, "training", "_apply_scores"),
    (tf.keras.layers.Conv1D, "inputs", "_compute_causal_padding"),
    (tf.keras.callbacks.ModelCheckpoint, "batch", "_save_model _get_file_path"),
    (tf.keras.optimizers.legacy.Optimizer, "tape", "_compute_gradients"),
    (
        tf.keras.optimizers.legacy.Optimizer,
        "experimental_aggregate_gradients",
        "apply_gradients",
    ),
)
"""A class, an argument, and methods to which Keras passes it, unlike TensorFlow 1.15."""

_left_out: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("left_out")


def fit_overrides(changes: Changes) -> None:
    """Adapts the overrides of classes that are derived from now on. `changes` can undo it."""
    by_class: dict[Any, dict[str, str]] = {}
    for cls, argument, names in _ADDED:
        for name in names.split():
            owner = next((base for base in cls.__mro__ if name in vars(base)), None)
            parameters = inspect.signature(vars(owner)[name]).parameters if owner else {}
            if argument in parameters:
                by_class.setdefault(owner, {})[name] = argument
                if parameters[argument].default is inspect.Parameter.empty:
                    changes.wrap(owner, name, functools.partial(_completed, argument))
    for owner, added in by_class.items():
        changes.set_attribute(owner, "__init_subclass__", classmethod(_fitting(owner, added)))


def _fitting(owner: Any, added: dict[str, str]) -> Callable[..., None]:
    def init_subclass(cls: Any, **kwargs: Any) -> None:
        super(owner, cls).__init_subclass__(**kwargs)
        for name, argument in added.items():
            override = vars(cls).get(name)
            if inspect.isfunction(override) and not _takes(override, argument):
                place = list(inspect.signature(getattr(owner, name)).parameters).index(argument)
                setattr(cls, name, _without(override, argument, place))

    return init_subclass


def _takes(override: Any, argument: str) -> bool:
    parameters = inspect.signature(override).parameters
    return argument in parameters or any(
        one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) for one in parameters.values()
    )


def _without(override: Any, argument: str, place: int) -> Callable[..., Any]:
    @functools.wraps(override)
    def fitted(*args: Any, **kwargs: Any) -> Any:
        expected = len(inspect.signature(override).parameters)
        left_out = kwargs.pop(argument, None)
        if place < len(args) and len(args) + len(kwargs) > expected:
            left_out, args = args[place], (*args[:place], *args[place + 1 :])
        before = _left_out.set({argument: left_out})
        try:
            return override(*args, **kwargs)
        finally:
            _left_out.reset(before)

    return fitted


def _completed(argument: str, original: Any) -> Callable[..., Any]:
    """Lets an override call the overridden method without the argument that it did not get."""
    signature = inspect.signature(original)
    old = signature.replace(
        parameters=[one for one in signature.parameters.values() if one.name != argument]
    )

    def completed(*args: Any, **kwargs: Any) -> Any:
        known = _left_out.get({})
        if (
            argument in known
            and argument not in kwargs
            and len(args) + len(kwargs) <= len(old.parameters)
        ):
            given = old.bind(*args, **kwargs).arguments
            return original(**given, **{argument: known[argument]})
        return original(*args, **kwargs)

    return completed
