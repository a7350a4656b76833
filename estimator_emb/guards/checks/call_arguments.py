"""Checks the arguments of `train`, `evaluate` and exports before a graph is built."""

import inspect
import numbers
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.engine.tables.functions import name_of

_LISTS = {
    "hooks": (tf.compat.v1.train.SessionRunHook, "Hooks must be a SessionRunHook"),
    "saving_listeners": (
        tf.compat.v1.train.CheckpointSaverListener,
        "saving_listeners must be a list of CheckpointSaverListener",
    ),
}
"""Argument -> its elements' class, and tensorflow-estimator's error text for other classes."""

_OWNERS = {"train": "Train", "evaluate": "Eval"}
"""Call -> the word before the argument's name in tensorflow-estimator's messages."""


def check_call(call: str, on_tpu: bool = False, **given: Any) -> None:
    """Raises TypeError or ValueError for invalid arguments of `call`. None is valid.

    The arguments are the lists `hooks` and `saving_listeners`, and numbers of steps. With `on_tpu`,
    a number below 1 gets the error that tensorflow-estimator raises for an evaluation on a TPU.
    """
    for name, value in given.items():
        if name in _LISTS:
            _check_list(call, name, value or ())
        elif value is not None:
            _check_steps(call, name, value, on_tpu)


def listed(given: Any) -> Any:
    """Returns a list of what an iterator yields, because a check would use it up."""
    return list(given) if isinstance(given, Iterator) else given


def check_specs(train_spec: Any, eval_spec: Any) -> None:
    """Raises errors that `train_and_evaluate` would raise only after some training."""
    exporters = getattr(eval_spec, "exporters", None)
    for exporter in exporters if isinstance(exporters, tuple) else ():
        # Exporters that choose when to export hold a second exporter that exports.
        exports = getattr(exporter, "_saved_model_exporter", exporter)
        receiver_fn = getattr(exports, "_serving_input_receiver_fn", check_call)
        _check_receiver_fn(f"{type(exporter).__name__} {exporter.name!r}: ", receiver_fn)


def _check_steps(call: str, name: str, steps: Any, on_tpu: bool) -> None:
    # Off a TPU, tensorflow-estimator also takes 12.5 steps.
    if not isinstance(steps, numbers.Integral if on_tpu else numbers.Real):
        raise TypeError(
            f"{_OWNERS[call]} {name} must be int, got {type(steps)}: {steps!r}. Give {call} a "
            "number of steps, or None."
        )
    if steps <= 0 and on_tpu and call == "evaluate":
        raise ValueError(
            f"{_OWNERS[call]} {name} must be positive, got {steps}. Give {call} 1 step or more."
        )
    if steps <= 0:
        raise ValueError(f"{call}: Must specify {name} > 0, given: {steps}.")


def _check_list(call: str, name: str, given: Any) -> None:
    kind, phrase = _LISTS[name]
    must = f"{name} must be a list of {kind.__name__} of tf.compat.v1.train"
    if isinstance(given, str) or not isinstance(given, Iterable):
        put = f" Put it into a list: {name}=[...]." if isinstance(given, kind) else ""
        raise TypeError(f"{call}: {must}; got {_described(given)}.{put}")
    for one in given:
        if not isinstance(one, kind):
            is_class = inspect.isclass(one) and issubclass(one, kind)
            advice = f" Call the class: {name}=[{one.__name__}(...)]." if is_class else ""
            raise TypeError(f"{call}: {phrase}, given: {_described(one)}. {must}.{advice}")


def checked_receiver_fns(receiver_fns: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    """Wraps each mode's serving_input_receiver_fn to check that it returns a receiver."""
    return {mode: _checked_receiver_fn(one) for mode, one in receiver_fns.items()}


def _checked_receiver_fn(receiver_fn: Any) -> Callable[..., Any]:
    _check_receiver_fn("", receiver_fn)

    def checked(*args: Any, **kwargs: Any) -> Any:
        received = receiver_fn(*args, **kwargs)
        if not hasattr(received, "receiver_tensors"):
            missing = " Is its `return` missing?" if received is None else ""
            raise ValueError(
                f"serving_input_receiver_fn ({name_of(receiver_fn)}) must return a "
                f"ServingInputReceiver; it returned {_described(received)}.{missing}"
            )
        return received

    return checked


def _check_receiver_fn(owner: str, receiver_fn: Any) -> None:
    if not callable(receiver_fn):
        raise TypeError(
            f"{owner}serving_input_receiver_fn must be a function that returns a "
            f"ServingInputReceiver; got {_described(receiver_fn)}. Give the function itself."
        )


def _described(value: Any) -> str:
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    is_short = value is None or isinstance(value, (str, numbers.Number))
    return repr(value) if is_short else f"a {type(value).__name__}"
