"""Builds the `Call` that describes a call of an estimator, with or without a TPU."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.guards.checks import call_arguments
from estimator_emb.guards.guard import Call

CURRENT = "_estimator_emb_call"
"""The estimator's attribute that holds its current call."""

_METHODS = {ModeKeys.TRAIN: "train", ModeKeys.EVAL: "evaluate", ModeKeys.PREDICT: "predict"}
_MODES = {method: mode for mode, method in _METHODS.items()}


_CHECKED = ("hooks", "saving_listeners", "steps", "max_steps")


def made(
    base: Call, method: str, *, checkpoint_path: Any = None, on_tpu: bool = False, **given: Any
) -> Call:
    """Returns the `Call` of an estimator's method. Raises the errors of `check_call`.

    `base` holds what all calls of the estimator share, and `given` the arguments of this call.
    """
    checked = {name: given[name] for name in _CHECKED if name in given}
    call_arguments.check_call(method, on_tpu, **checked)
    path = checkpoint_path
    if base.restores and method in ("evaluate", "predict"):
        assert base.directory is not None
        path = base.directory.to_read(method, path, base.warm_start)
    mode = _MODES.get(method, "")
    return dataclasses.replace(base, method=method, mode=mode, checkpoint=path, **given)


@contextlib.contextmanager
def current(estimator: Any, call: Call) -> Iterator[None]:
    """Makes `call_of` use `call` for this estimator inside the context."""
    before = vars(estimator).get(CURRENT)
    setattr(estimator, CURRENT, call)
    try:
        yield
    finally:
        setattr(estimator, CURRENT, before)


def call_of(estimator: Any, base: Call, mode: str) -> Call:
    """Returns the `Call` for which an estimator builds a graph of `mode`.

    This is not the current call if a training's hook builds an evaluation graph.
    """
    call: Call | None = vars(estimator).get(CURRENT)
    if call is None or call.mode not in ("", mode):
        call = dataclasses.replace(base, method=_METHODS.get(mode, "export"))
    return dataclasses.replace(call, mode=mode, warm_start=base.warm_start)
