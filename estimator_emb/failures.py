# SPDX-License-Identifier: Apache-2.0
"""How an error that ends a program reads: the program's own lines, then the cause.

TensorFlow puts a hundred lines of its own between the two and after them. They are left out of the
messages of errors that a session raises, and of what a terminal shows when the program ends.
ESTIMATOR_EMB_FULL_TRACEBACK=1 in the environment keeps them, and so does
`tf.debugging.disable_traceback_filtering()`.
"""

import contextlib
import functools
import importlib.util
import linecache
import os
import re
import sys
import sysconfig
import traceback
import types
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

VARIABLE = "ESTIMATOR_EMB_FULL_TRACEBACK"
LIBRARIES = (
    "absl",
    "estimator_emb",
    "feature_columns",
    "keras",
    "tensorflow",
    "tensorflow_estimator",
    "tf_keras",
)
"""Packages whose lines are none of a program's."""
_IN_FUNCTION = re.compile(r"\{\{function_node ([^}]+)\}\}\{\{node ([^}]+)\}\}")
_OF_CORE = re.compile(r"core_\d+(_\d+)?/")
_OURS = ("estimator_emb", "feature_columns", "tensorflow_estimator")


def is_full() -> bool:
    """Returns whether everything is to be shown."""
    wanted = os.environ.get(VARIABLE, "") not in ("", "0")
    return wanted or not tf.debugging.is_traceback_filtering_enabled()


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Shortens the message of an error that a session raises inside."""
    try:
        yield
    except tf.errors.OpError as error:
        if not is_full():
            shorten(error)
        raise


def shorten(error: tf.errors.OpError) -> None:
    """Leaves TensorFlow's stack traces out of the message of an error, in place.

    Its other attributes stay, and its class stays one that `except` clauses of the old one catch.
    """
    if getattr(error, "_is_short", False):
        return
    op = _first_of_its_copies(error.op or _op_in_function(error))
    lines = _cause(error.message)
    made = _line_of_program(op)
    if made and not _is_of_library(op):
        lines.append(f"The op {op.name!r} was made by {made}")
    error._message = "\n".join(lines)
    error.__class__ = _short_class(type(error))  # type: ignore[arg-type]
    if isinstance(error.__context__, tf.errors.OpError):
        error.__suppress_context__ = True  # It says the same.


def install() -> None:
    """Has Python show errors that end the program without frames of TensorFlow between its own.

    Where the program has an excepthook of its own, that stays.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _excepthook


def _excepthook(
    kind: type[BaseException], error: BaseException, frames: types.TracebackType | None
) -> None:
    try:
        if not is_full() and _leads_through(frames, _OURS):
            frames = _filtered(frames)
            error.with_traceback(frames)
            _filter_chained(error)
    finally:
        sys.__excepthook__(kind, error, frames)


def _filter_chained(error: BaseException) -> None:
    seen = {id(error)}
    other = error.__cause__ or error.__context__
    while other is not None and id(other) not in seen:
        seen.add(id(other))
        other.__traceback__ = _filtered(other.__traceback__)
        other = other.__cause__ or other.__context__


def _filtered(frames: types.TracebackType | None) -> types.TracebackType | None:
    """Returns the frames of the program; all of them where none is the program's."""
    of_program = []
    one = frames
    while one is not None:
        if is_of_program(one.tb_frame.f_code.co_filename):
            of_program.append(one)
        one = one.tb_next
    kept = None
    for one in reversed(of_program):
        # Not the frame's own place, which has moved on in a `finally` or at the end of a `with`.
        kept = types.TracebackType(kept, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return kept or frames


def _leads_through(frames: types.TracebackType | None, packages: tuple[str, ...]) -> bool:
    folders = tuple(folder for package in packages for folder in _folders(package))
    return any(
        frame.f_code.co_filename.startswith(folders) for frame, _ in traceback.walk_tb(frames)
    )


def is_of_program(file: str) -> bool:
    """Returns whether the program wrote a file, and no library that it trains by."""
    if file.startswith("<") or "__autograph_generated_file" in os.path.basename(file):
        return False
    return not file.startswith(_library_folders())


@functools.cache
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = [folder for package in LIBRARIES for folder in _folders(package)]
    # The standard library's own files; other packages below it may be the program's.
    standard = [os.path.join(paths["stdlib"], name) for name in ("contextlib.py", "runpy.py")]
    reraising = importlib.util.find_spec("six")
    return (*folders, *standard, *((reraising.origin or "six.py",) if reraising else ()))


@functools.cache
def _folders(package: str) -> tuple[str, ...]:
    found = importlib.util.find_spec(package)
    places = (found and found.submodule_search_locations) or ()
    return tuple(os.path.join(place, "") for place in places)


def _cause(message: str) -> list[str]:
    """Returns the lines of a message that say what happened."""
    lines = message.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith(("Node: ", "Node:'"))]
    if starts:
        lines = lines[starts[-1] + 1 :]
    ends = [i for i, line in enumerate(lines) if line.startswith("Original stack trace for")]
    if ends:
        lines = lines[: ends[0]]
    kept: list[str] = []
    for line in lines:
        said = line.strip()
        if not said or said.startswith(("[[", "Graph execution error")):
            continue
        # The frames of a Python function repeat lines, and end in the cause that stands first.
        if line not in kept or "Traceback (most recent call last):" in kept:
            kept.append(line)
    return kept or message.splitlines()[:1]


def _op_in_function(error: tf.errors.OpError) -> Any:
    """Returns the op that failed in a branch or another function of the graph; None elsewhere.

    TensorFlow looks it up among the ops outside of functions, and leaves the function's name out of
    the message; that of the runtime, which it handles meanwhile, has it.
    """
    handled: BaseException | None = error
    while isinstance(handled, tf.errors.OpError):
        found = _IN_FUNCTION.search(handled.message)
        if found:
            function = _function(error, found[1])
            if function is not None:
                with contextlib.suppress(KeyError):
                    return function.get_operation_by_name(found[2])
        handled = handled.__context__
    return None


def _function(error: tf.errors.OpError, name: str) -> Any:
    """Returns the graph of a function that the session which raised an error knows; None else."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        session = frame.f_locals.get("self")
        if isinstance(session, tf.compat.v1.Session):
            return getattr(session.graph._get_function(name), "graph", None)
    return None


def _first_of_its_copies(op: Any) -> Any:
    """Returns the op of core 0 that an op of another emulated core was copied from."""
    copied = op is not None and _OF_CORE.match(op.name)
    if copied:
        with contextlib.suppress(KeyError):
            return op.graph.get_operation_by_name(op.name[copied.end() :])
    return op


def _line_of_program(op: Any) -> str | None:
    """Returns where the program made an op, None where that is unknown."""
    made = getattr(op, "traceback", None)
    own = [frame for frame in made or () if is_of_program(frame.filename)]
    if not own:
        return None
    last = own[-1]
    source = linecache.getline(last.filename, last.lineno).strip()
    return f"{last.filename}, line {last.lineno}, in {last.name}: {source}".rstrip(": ")


def _is_of_library(op: Any) -> bool:
    """Returns whether an op was made by this library, not by a function of the program."""
    files = [frame.filename for frame in getattr(op, "traceback", None) or ()]
    own = [i for i, file in enumerate(files) if is_of_program(file)]
    ours = _folders("estimator_emb")
    # What lies between the program's last line and the op: the library's own work, if it is ours.
    return not own or any(file.startswith(ours) for file in files[own[-1] + 1 :])


@functools.cache
def _short_class(kind: Any) -> type:
    def message_only(self: Any) -> str:
        return self.message

    def as_of_tensorflow(self: Any) -> Any:
        # Each class knows the arguments of its constructor.
        return kind, kind.__reduce__(self)[1]

    return type(
        kind.__name__,
        (kind,),
        {
            "__doc__": kind.__doc__,
            "__module__": kind.__module__,
            "__str__": message_only,
            "__reduce__": as_of_tensorflow,
            "_is_short": True,
        },
    )
