"""Rejects optimizers that would train nothing in a model_fn, or train tables wrongly.

In a v1 graph, Keras's `apply_gradients` returns no op that runs the update. A program that groups
its result with an increment of the global step would train to the end without changing a variable.

For float16, some optimizers scale the loss and unscale only the gradients of their own variables.
Tables would then train by the scaled loss.
"""

import contextlib
import contextvars
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals import patches
from estimator_emb.guards.guard import Call, Guard, ModelBatch

ADVICE = (
    "A Keras optimizer does not train in a model_fn: use an optimizer of tf.compat.v1.train, such "
    "as tf.compat.v1.train.AdamOptimizer, or estimator_emb.keras.Adagrad."
)
_SCALING = tf.compat.v1.mixed_precision.MixedPrecisionLossScaleOptimizer
_has_tables: contextvars.ContextVar[bool | None] = contextvars.ContextVar("tables", default=None)
"""Whether the model_fn that this thread runs has tables. None outside of a model_fn."""


class WrongOptimizers(Guard):
    """Makes Keras and loss-scaling optimizers raise ValueError if a model_fn cannot use them."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours

    def around(self, batch: ModelBatch) -> contextlib.AbstractContextManager[Any]:
        return _watched(self.call.has_spec)


@contextlib.contextmanager
def _watched(has_tables: bool) -> Iterator[None]:
    """Makes unsuitable optimizers raise ValueError in this thread while it runs a model_fn."""
    _wrap(tf.keras.optimizers.experimental.Optimizer, "minimize", _is_keras)
    _wrap(tf.keras.optimizers.experimental.Optimizer, "apply_gradients", _is_keras)
    # A legacy optimizer works with given gradients, and with a function as the loss.
    _wrap(tf.keras.optimizers.legacy.Optimizer, "minimize", _is_keras_without_tape)
    third = sys.modules.get("keras")
    if getattr(third, "__version__", "").startswith("3."):
        base = getattr(third, "optimizers").Optimizer  # noqa: B009 - unknown to mypy.
        _wrap(base, "apply", _is_keras)
        _wrap(base, "apply_gradients", _is_keras)
    _wrap(_SCALING, "compute_gradients", _scales_loss_of_tables)
    before = _has_tables.set(has_tables)
    try:
        yield
    finally:
        _has_tables.reset(before)


def _wrap(cls: Any, name: str, problem: Callable[..., str | None]) -> None:
    # Keras splits its base class in two, and only the derived class is public.
    cls = next((base for base in cls.__mro__ if name in vars(base)), cls)
    if name not in vars(cls):
        return

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
            wrong = problem(self, *args, **kwargs) if _has_tables.get() is not None else None
            if wrong:
                raise ValueError(wrong.format(optimizer=type(self).__name__, method=name))
            return function(self, *args, **kwargs)

        return watched

    patches.LASTING.wrap(cls, name, make)


def _is_keras(optimizer: Any, *args: Any, **kwargs: Any) -> str | None:
    from estimator_emb import keras

    trains = isinstance(optimizer, keras.Adagrad)
    if trains or not keras._in_v1_graph() or not keras._unordered():
        return None
    return f"{{optimizer}}.{{method}}: {ADVICE}"


def _is_keras_without_tape(
    optimizer: Any, loss: Any = None, var_list: Any = None, *args: Any, **kwargs: Any
) -> str | None:
    if callable(loss) or kwargs.get("tape") is not None:
        return None
    return _is_keras(optimizer)


def _scales_loss_of_tables(optimizer: Any, *args: Any, **kwargs: Any) -> str | None:
    if not _has_tables.get():
        return None
    return (
        "{optimizer} scales the loss, and embedding tables would train by the scaled loss. Give "
        "the optimizer that it wraps, without enable_mixed_precision_graph_rewrite: compute in "
        "bfloat16, which needs no scale, or in float32."
    )
