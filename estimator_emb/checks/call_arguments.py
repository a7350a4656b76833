# SPDX-License-Identifier: Apache-2.0
"""Checks what a program passes to `train`, `evaluate` and exports, before a graph is built."""

import inspect
import math
import numbers
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from estimator_emb.tables.functions import name_of

_HOOK = tf.compat.v1.train.SessionRunHook
_LISTENER = tf.compat.v1.train.CheckpointSaverListener
_CALLBACK = "Callback"  # The class of Keras 2 and of Keras 3.


def check(call: str, hooks: Any, saving_listeners: Any = None, **numbers_of_steps: Any) -> None:
    """Raises TypeError or ValueError for arguments with which `call` cannot run."""
    for name, steps in numbers_of_steps.items():
        _check_steps(call, name, steps)
    _check_list(call, "hooks", hooks, _HOOK)
    _check_list(call, "saving_listeners", saving_listeners, _LISTENER)


def check_specs(train_spec: Any, eval_spec: Any) -> None:
    """Raises TypeError for what a `train_and_evaluate` would meet only after some training."""
    _check_steps("TrainSpec", "max_steps", getattr(train_spec, "max_steps", None))
    _check_steps("EvalSpec", "steps", getattr(eval_spec, "steps", None))
    for exporter in getattr(eval_spec, "exporters", None) or ():
        # Exporters that choose when to export have another one that exports.
        exports = getattr(exporter, "_saved_model_exporter", exporter)
        receiver_fn = getattr(exports, "_serving_input_receiver_fn", None)
        if receiver_fn is not None:
            _check_receiver_fn(f"{type(exporter).__name__} {exporter.name!r}: ", receiver_fn)


def _check_steps(call: str, name: str, steps: Any) -> None:
    if steps is None:
        return
    is_number = isinstance(steps, numbers.Real) and not isinstance(steps, bool)
    # Off a TPU, tensorflow-estimator takes 4.0 for 4, and infinity for no end.
    if not is_number or (steps != math.inf and steps % 1 != 0):
        raise TypeError(
            f"{call}: {name} must be int, a number of steps, or None; got {type(steps)}: {steps!r}."
        )
    if steps <= 0:
        raise ValueError(f"{call}: Must specify {name} > 0, given: {steps}.")


def _check_list(call: str, name: str, given: Any, kind: type) -> None:
    must = f"{call}: {name} must be a list of {kind.__name__} of tf.compat.v1.train"
    if isinstance(given, str) or not isinstance(given, (Iterable, type(None))):
        put = f" Put it into a list: {name}=[...]." if isinstance(given, kind) else ""
        raise TypeError(f"{must}; got {_described(given)}.{put}")
    for one in given or ():
        if isinstance(one, kind):
            continue
        advice = ""
        if inspect.isclass(one) and issubclass(one, kind):
            advice = f" Call the class: {name}=[{one.__name__}(...)]."
        elif any(base.__name__ == _CALLBACK for base in type(one).__mro__):
            advice = " Only fit of a Keras model calls a Callback; write a SessionRunHook."
        raise TypeError(f"{must}, given: {_described(one)}.{advice}")


def checked_receiver_fn(receiver_fn: Any) -> Callable[..., Any]:
    """Wraps a serving_input_receiver_fn, so that it must be one and return a receiver."""
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
    if value is None or isinstance(value, (str, numbers.Number)):
        return repr(value)
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"
