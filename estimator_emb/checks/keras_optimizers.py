# SPDX-License-Identifier: Apache-2.0
"""Rejects Keras optimizers in a model_fn, where they would train nothing.

In a v1 graph, Keras's `apply_gradients` returns nothing that runs the update. A program that groups
it with an increment of the global step would train to the end without changing a variable.
"""

import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_emb.checks import in_model_fn
from estimator_emb.private import patches

ADVICE = (
    "A Keras optimizer does not train in a model_fn: use an optimizer of tf.compat.v1.train, such "
    "as tf.compat.v1.train.AdamOptimizer, or estimator_emb.keras.Adagrad."
)


def watch() -> None:
    """Makes Keras optimizers raise ValueError in a model_fn."""
    _wrap(tf.keras.optimizers.experimental.Optimizer, "minimize", _always)
    _wrap(tf.keras.optimizers.experimental.Optimizer, "apply_gradients", _always)
    # A legacy optimizer works with given gradients, and with a function as the loss.
    _wrap(tf.keras.optimizers.legacy.Optimizer, "minimize", _without_tape)
    third = sys.modules.get("keras")
    if getattr(third, "__version__", "").startswith("3."):
        base = getattr(third, "optimizers").Optimizer  # noqa: B009 - unknown to mypy.
        _wrap(base, "apply", _always)
        _wrap(base, "apply_gradients", _always)


def _always(*args: Any, **kwargs: Any) -> bool:
    return True


def _without_tape(loss: Any = None, var_list: Any = None, *args: Any, **kwargs: Any) -> bool:
    return not callable(loss) and kwargs.get("tape") is None


def _wrap(cls: Any, name: str, refuses: Callable[..., bool]) -> None:
    # Keras's base class is two classes, of which only one is public.
    cls = next((base for base in cls.__mro__ if name in vars(base)), cls)
    if name not in vars(cls):
        return

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
            if in_model_fn.is_running() and _trains_nothing(self) and refuses(*args, **kwargs):
                raise ValueError(f"{type(self).__name__}.{name}: {ADVICE}")
            return function(self, *args, **kwargs)

        return watched

    patches.LASTING.wrap(cls, name, make)


def _trains_nothing(optimizer: Any) -> bool:
    from estimator_emb import keras

    return not isinstance(optimizer, keras.Adagrad) and keras._in_v1_graph() and keras._unordered()
