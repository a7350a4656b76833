"""Finds the lines of the program that ops and errors come from."""

import itertools
import re
import traceback
from typing import Any

import tensorflow as tf

from estimator_emb.catalog import limits
from estimator_emb.compat.internals.graphs import BranchGradientGraph, LoopGradientGraph
from estimator_emb.preflight.report import CannotCheck, Finding
from estimator_emb.reporting import frames
from estimator_emb.spec.options import CannotEmulate


class ProgramError(CannotCheck):
    """Raised if a function of the program, such as model_fn, fails."""


def line_of(op: tf.Operation) -> str | None:
    """Returns the 'file:line' that created an op, or a gradient op's forward op, if known."""
    while (source := _differentiated(op)) is not None:
        op = source
    return _innermost(frames.traceback_of(op))


def _differentiated(op: tf.Operation) -> tf.Operation | None:
    original: tf.Operation | None = getattr(op, "_original_op", None)
    if original is not None:
        return original
    # In the gradient of a branch or loop, only the op's name identifies the forward op.
    named = _GRADIENT.match(op.name)
    if named is None or not isinstance(op.graph, (BranchGradientGraph, LoopGradientGraph)):
        return None
    try:
        return op.graph._forward_graph.get_operation_by_name(named[1])
    except KeyError:
        return None


_GRADIENT = re.compile(r"(?:.*/)?gradients(?:_\d+)?/(.+)_grad(?:_\d+)?/")


def line_of_error(error: BaseException) -> str | None:
    """Returns the innermost 'file:line' of the program in a traceback, if any."""
    return _innermost(traceback.extract_tb(error.__traceback__))


def _innermost(passed: Any) -> str | None:
    frame = frames.innermost(passed)
    return frame and f"{frame.filename}:{frame.lineno}"


def is_refusal(error: Exception) -> bool:
    """Returns whether a class or column rejected its arguments. It would do so on a TPU too."""
    passed = list(traceback.extract_tb(error.__traceback__))
    inside = list(
        itertools.takewhile(
            lambda frame: not frames.is_of_program(frame.filename), reversed(passed)
        )
    )
    entered = inside[-1].filename if 0 < len(inside) < len(passed) else ""
    return (
        not isinstance(error, CannotEmulate)
        and frames.is_in(entered, frames.OURS)
        and any(
            frame.name in ("__init__", "__new__", "__post_init__")
            or "feature_columns" in frame.filename
            for frame in inside
            if frames.is_in(frame.filename, frames.OURS)
        )
    )


def refusal(error: Exception) -> Finding:
    """Returns a finding that says `use_tpu=True` raises this error."""
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    text = text.rstrip(".") or "no message"
    return Finding(
        f"use_tpu=True raises {type(error).__name__}: {text}", where=line_of_error(error)
    )


def broken(refusal: limits.Refusal) -> Finding:
    """Returns a finding for a limit of a TPU that the program breaks."""
    instead = (refusal.remedy[:1].lower() + refusal.remedy[1:]).rstrip(".")
    tensor = refusal.value
    if tensor is None:
        return Finding(refusal.problem, instead)
    op = tensor.op
    return Finding(refusal.problem, instead, op.type, op.name, tensor.dtype.name, line_of(op))


def unfollowed(error: Exception, beginning: str = "") -> CannotCheck | None:
    """Returns a `CannotCheck` for an error, unless it is a `CannotCheck` already."""
    if isinstance(error, CannotCheck):
        return None
    return CannotCheck(f"{beginning}{type(error).__name__}: {error}")


def failed(error: Exception, function: str) -> ProgramError | None:
    """Returns a `ProgramError` for an error in `function`, unless it is a `CannotCheck` already."""
    if isinstance(error, CannotCheck):
        return None
    where = line_of_error(error)
    return ProgramError(
        f"{function} failed{f' at {where}' if where else ''}: {type(error).__name__}: {error}"
    )
