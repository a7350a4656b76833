# SPDX-License-Identifier: Apache-2.0
"""Finds the lines of the program that ops and errors come from."""

import contextlib
import itertools
import os
import re
import sysconfig
import traceback
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.messages.failures import LIBRARIES
from estimator_emb.preflight.report import CannotCheck, Finding
from estimator_emb.private.graphs import BranchGradientGraph, LoopGradientGraph
from estimator_emb.spec.options import CannotEmulate

_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_SITES = (os.path.dirname(os.path.dirname(tf.__file__)), sysconfig.get_path("purelib"), _OURS)
_FOLDERS = tuple(os.path.join(site, library) + os.sep for site in _SITES for library in LIBRARIES)
_LIBRARY = sysconfig.get_path("stdlib") + os.sep
_MAKERS = tuple(
    os.path.join(site, library) + os.sep
    for site in _SITES
    for library in ("estimator_emb", "feature_columns", "tensorflow_estimator")
)


class ProgramError(CannotCheck):
    """The error that a function of the program has raised one."""


def line_of(op: tf.Operation) -> str | None:
    """Returns the 'file:line' of the program that created an op; None if it has none.

    For the gradient of an op, it is the line that created that op.
    """
    while (source := _differentiated(op)) is not None:
        op = source
    try:
        frames = [(frame.filename, frame.lineno) for frame in op.traceback]
    except (AttributeError, TypeError):
        return None
    return _innermost(frames)


def _differentiated(op: tf.Operation) -> tf.Operation | None:
    """Returns the op of whose gradient an op is a part; None if it is of none."""
    original: tf.Operation | None = getattr(op, "_original_op", None)
    if original is not None:
        return original
    # Ops of the gradient of a branch or loop do not say, but for their names.
    named = _GRADIENT.match(op.name)
    if named is None or not isinstance(op.graph, (BranchGradientGraph, LoopGradientGraph)):
        return None
    try:
        return op.graph._forward_graph.get_operation_by_name(named[1])
    except KeyError:
        return None


_GRADIENT = re.compile(r"(?:.*/)?gradients(?:_\d+)?/(.+)_grad(?:_\d+)?/")


def line_of_error(error: BaseException) -> str | None:
    """Returns the innermost 'file:line' of the program in an exception; None if it has none."""
    frames = traceback.extract_tb(error.__traceback__)
    return _innermost([(frame.filename, frame.lineno) for frame in frames])


def _innermost(frames: list[tuple[str, Any]]) -> str | None:
    return next((f"{name}:{line}" for name, line in reversed(frames) if _is_of_program(name)), None)


def _is_of_program(file: str) -> bool:
    library = file.startswith(_LIBRARY) and "-packages" + os.sep not in file
    return not (library or file.startswith(_FOLDERS) or file.startswith("<"))


def is_refusal(error: Exception) -> bool:
    """Returns whether a class or column of an estimator's refuses what a program makes it with.

    What only an emulated TPU refuses says nothing about a TPU.
    """
    frames = list(traceback.extract_tb(error.__traceback__))
    inside = list(
        itertools.takewhile(lambda frame: not _is_of_program(frame.filename), reversed(frames))
    )
    entered = inside[-1].filename if 0 < len(inside) < len(frames) else ""
    return (
        not isinstance(error, CannotEmulate)
        and entered.startswith(_MAKERS)
        and any(
            frame.name in ("__init__", "__new__", "__post_init__")
            or "feature_columns" in frame.filename
            for frame in inside
            if frame.filename.startswith(_MAKERS)
        )
    )


def refusal(error: Exception) -> Finding:
    """Returns the finding that `use_tpu=True` raises an error."""
    text = str(error).rstrip(".") or "no message"
    return Finding(
        f"use_tpu=True raises {type(error).__name__}: {text}", where=line_of_error(error)
    )


@contextlib.contextmanager
def explained(function: str) -> Iterator[None]:
    """Raises a `ProgramError` for any error inside, which is a function of the program."""
    try:
        yield
    except CannotCheck:
        raise
    except Exception as error:
        where = line_of_error(error)
        raise ProgramError(
            f"{function} failed{f' at {where}' if where else ''}: {type(error).__name__}: {error}"
        ) from error
