"""Makes `tf.keras.optimizers` create Keras 2.0 to 2.10 optimizers while a model_fn is called.

The old `tf.keras.optimizers.Adam` is `tf.keras.optimizers.legacy.Adam` today. Today's Adam cannot
train in a v1 graph, and tensorflow-estimator refuses it. While a model_fn is called, today's
classes create legacy optimizers. An optimizer that was made earlier is replaced by the legacy
optimizer with the same settings when tensorflow-estimator gets it.
"""

import contextlib
import contextvars
import functools
import inspect
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals import patches
from estimator_emb.compat.internals.estimators import base_head, canned_optimizers
from estimator_emb.compat.internals.graphs import eager_mode

_Optimizer: Any = tf.keras.optimizers.Optimizer
_legacy: Any = tf.keras.optimizers.legacy
_SAME = {
    name: getattr(_legacy, name)
    for name in dir(_legacy)
    if name != "Optimizer" and inspect.isclass(getattr(tf.keras.optimizers, name, None))
}
"""Name of a class of `tf.keras.optimizers` -> the legacy class of the same name."""
_OF_EACH = ("clipnorm", "clipvalue", "global_clipnorm", "decay", "lr")
"""Settings of all legacy optimizers."""
_OF_SPEED = ("jit_compile",)
"""Settings that do not change results."""
_makes: contextvars.ContextVar[bool] = contextvars.ContextVar("makes", default=False)
"""Whether this thread is calling a model_fn. The classes then create legacy optimizers."""


@contextlib.contextmanager
def made() -> Iterator[None]:
    """Makes Keras optimizer classes create legacy optimizers while a model_fn builds its graph."""
    _install()
    before = _makes.set(True)
    try:
        yield
    finally:
        _makes.reset(before)


def legacy_of(optimizer: Any) -> Any:
    """Converts a current Keras optimizer to its legacy optimizer, and returns others unchanged.

    Raises ValueError for a class or a setting without a legacy counterpart.
    """
    if not isinstance(optimizer, _Optimizer) or isinstance(optimizer, _legacy.Optimizer):
        return optimizer
    cls: Any = type(optimizer)
    if not _has_legacy(cls):
        raise ValueError(
            f"An Estimator trains by an optimizer of tf.keras.optimizers.legacy, which has no "
            f"{cls.__name__}: give one of {', '.join(sorted(_SAME))}; got {optimizer!r}."
        )
    given = {name: getattr(optimizer, name, default) for name, default in _defaults(cls).items()}
    given |= {"learning_rate": _rate(optimizer._learning_rate), "name": optimizer.name}
    return _make(cls, given)


def _has_legacy(cls: Any) -> bool:
    name = cls.__name__
    return name in _SAME and cls is getattr(tf.keras.optimizers, name)


def _make(cls: Any, given: dict[str, Any]) -> Any:
    legacy = _SAME[cls.__name__]
    known = {*_defaults(legacy), *_OF_EACH}
    defaults = _defaults(cls)
    unknown = [
        f"{name}={value!r}"
        for name, value in given.items()
        if name not in (*known, *_OF_SPEED) and value != defaults.get(name, inspect.Parameter.empty)
    ]
    if unknown:
        raise ValueError(
            f"{cls.__name__}: An Estimator trains by tf.keras.optimizers.legacy.{cls.__name__}, "
            f"which does not know {', '.join(unknown)}: leave it out. It takes "
            f"{', '.join(sorted(known))}."
        )
    return legacy(**{name: value for name, value in given.items() if name in known})


@functools.cache
def _defaults(cls: Any) -> dict[str, Any]:
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    kinds = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    return {one.name: one.default for one in parameters if one.kind not in kinds}


def _rate(rate: Any) -> Any:
    """Returns a schedule unchanged, and the value or initial value of a learning rate variable."""
    if not isinstance(rate, tf.Variable):
        return rate
    if hasattr(rate.handle, "numpy"):
        with eager_mode():
            return float(rate.numpy())
    initial = rate.initializer.inputs[1]
    value = tf.get_static_value(initial)
    return initial if value is None else float(value)


@functools.cache
def _install() -> None:
    """Wraps the functions that create and accept optimizers. Only `made` activates the wrappers."""
    # Keras's optimizers have two base classes, and only the first is public.
    base = _Optimizer.__mro__[1]
    patches.LASTING.wrap(base, "__new__", _making)
    patches.LASTING.wrap(canned_optimizers, "get_optimizer_instance_v2", _taking_first)
    patches.LASTING.wrap(base_head, "create_estimator_spec_train_op", _taking_named)


def _making(original: Any) -> Any:
    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if _makes.get() and not tf.executing_eagerly() and _has_legacy(cls):
            # Keras 2.0 to 2.10 had the legacy order of arguments.
            named = zip(_defaults(_SAME[cls.__name__]), args, strict=False)
            return _make(cls, {**dict(named), **kwargs})
        return object.__new__(cls)

    return new


def _taking_first(original: Any) -> Any:
    def get(opt: Any, *args: Any, **kwargs: Any) -> Any:
        if _makes.get():
            opt = legacy_of(opt() if callable(opt) else opt)
        return original(opt, *args, **kwargs)

    return get


def _taking_named(original: Any) -> Any:
    def create(head_name: Any, optimizer: Any = None, *args: Any, **kwargs: Any) -> Any:
        if _makes.get():
            optimizer = legacy_of(optimizer)
        return original(head_name, optimizer, *args, **kwargs)

    return create
