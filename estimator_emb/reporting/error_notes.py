"""Completes error messages, and removes TensorFlow's stack traces from them.

TensorFlow adds about a hundred lines to the message of an error that a session raises. They stay if
the environment has ESTIMATOR_EMB_FULL_TRACEBACK=1, or after
`tf.debugging.disable_traceback_filtering()`.
"""

import contextlib
import functools
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.catalog import environment
from estimator_emb.reporting import frames

_FRAME = re.compile(r'  File "([^"]+)", line \d+.*\n(?: {4}.*\n)*')
_IN_FUNCTION = re.compile(r"\{\{function_node ([^}]+)\}\}\{\{node ([^}]+)\}\}")


@contextlib.contextmanager
def explained(
    explain: Callable[..., Exception | None], *args: Any, chained: bool = True
) -> Iterator[None]:
    """Replaces an error raised inside by `explain(error, *args)`, unless that returns None."""
    try:
        yield
    except Exception as error:
        other = explain(error, *args)
        if other is None:
            raise
        raise other from (error if chained else None)


def is_full() -> bool:
    """Returns whether error messages keep all their lines."""
    wanted = environment.FULL_TRACEBACK.value() not in (None, "0")
    return wanted or not tf.debugging.is_traceback_filtering_enabled()


def shorten(error: tf.errors.OpError) -> None:
    """Removes TensorFlow's stack traces from an error in place. A subclass replaces its class."""
    if getattr(error, "_is_short", False):
        return
    op = error.op or _op_in_function(error)
    made = frames.made_by(op)
    if not made and op is not None and "/" in op.name and not frames.is_ours(op):
        made = f"The op is {op.name!r}."  # A library's op may have a column's name in its scope.
    said = "\n".join([*cause(error.message), *([made] if made else ())])
    error._message = _FRAME.sub(lambda one: one[0] if frames.is_of_program(one[1]) else "", said)
    error.__class__ = _short_class(type(error))  # type: ignore[arg-type]
    if isinstance(error.__context__, tf.errors.OpError):
        error.__suppress_context__ = True  # It repeats the message.


def cause(message: str) -> list[str]:
    """Returns the lines of a message that say what happened."""
    lines = message.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith(("Node: ", "Node:'"))]
    if starts:
        lines = lines[starts[-1] + 1 :]
    kept: list[str] = []
    for line in lines:
        stripped = line.strip()
        if not stripped or stripped.startswith(("[[", "Graph execution error")):
            continue
        # The frames of a Python function repeat lines, and the last line repeats the first.
        if line not in kept or "Traceback (most recent call last):" in kept:
            kept.append(line)
    return kept or message.splitlines()[:1]


def graph_of(error: tf.errors.OpError) -> tf.Graph | None:
    """Returns the graph of the session that raised an error, if a session raised it."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        session = frame.f_locals.get("self")
        if isinstance(session, tf.compat.v1.Session):
            return session.graph
    return None


def _op_in_function(error: tf.errors.OpError) -> Any:
    """Returns the failed op if it is part of a function, or None.

    If the message of `error` does not name the op, an error in its `__context__` may name it.
    """
    graph = graph_of(error)
    handled: BaseException | None = error
    while graph is not None and isinstance(handled, tf.errors.OpError):
        match = _IN_FUNCTION.search(handled.message)
        if match and (function := getattr(graph._get_function(match[1]), "graph", None)):
            with contextlib.suppress(KeyError):
                return function.get_operation_by_name(match[2])
        handled = handled.__context__
    return None


@functools.cache
def _short_class(kind: Any) -> type:
    return type(
        kind.__name__,
        (kind,),
        {
            "__doc__": kind.__doc__,
            "__module__": kind.__module__,
            "__str__": lambda self: self.message,
            # TensorFlow's class knows the arguments of its own constructor.
            "__reduce__": lambda self: (kind, kind.__reduce__(self)[1]),
            "_is_short": True,
        },
    )
