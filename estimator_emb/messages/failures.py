# SPDX-License-Identifier: Apache-2.0
"""Shortens errors that end a program to the program's own lines and the cause.

TensorFlow adds a hundred lines of its own between the two and after them. They are left out of the
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
"""Packages whose lines do not count as the program's."""
_IN_FUNCTION = re.compile(r"\{\{function_node ([^}]+)\}\}\{\{node ([^}]+)\}\}")
_OF_CORE = re.compile(r"core_\d+(_\d+)?/")
_OURS = ("estimator_emb", "feature_columns", "tensorflow_estimator")


def is_full() -> bool:
    """Returns whether errors are to be shown with all their lines."""
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
    """Removes TensorFlow's stack traces from the message of an error, in place.

    Its other attributes stay; its class becomes a subclass, which the same `except` clauses catch.
    """
    if getattr(error, "_is_short", False):
        return
    op = _first_of_its_copies(error.op or _op_in_function(error))
    lines = cause(error.message)
    line = line_of_program(op)
    if line and not _is_of_library(op):
        lines.append(f"The op {op.name!r} was made by {line}")
    error._message = "\n".join(lines)
    error.__class__ = _short_class(type(error))  # type: ignore[arg-type]
    if isinstance(error.__context__, tf.errors.OpError):
        error.__suppress_context__ = True  # It says the same.


def install() -> None:
    """Makes Python show an error that ends the program without TensorFlow's frames.

    If the program has an excepthook of its own, that stays.
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
    """Returns the frames of the program; all frames if none is the program's."""
    program_frames = []
    frame = frames
    while frame is not None:
        if is_of_program(frame.tb_frame.f_code.co_filename):
            program_frames.append(frame)
        frame = frame.tb_next
    kept = None
    for frame in reversed(program_frames):
        # tb_lineno, because the frame's own line has moved on in a `finally` or after a `with`.
        kept = types.TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept or frames


def _leads_through(frames: types.TracebackType | None, packages: tuple[str, ...]) -> bool:
    folders = tuple(folder for package in packages for folder in _folders(package))
    return any(
        frame.f_code.co_filename.startswith(folders) for frame, _ in traceback.walk_tb(frames)
    )


def is_of_program(file: str) -> bool:
    """Returns whether a file is the program's, and not of a library by which it trains."""
    if file.startswith("<") or "__autograph_generated_file" in os.path.basename(file):
        return False
    return not file.startswith(_library_folders())


@functools.cache
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = [folder for package in LIBRARIES for folder in _folders(package)]
    # Only these files of the standard library, since the program may lie in a folder below it.
    standard = [os.path.join(paths["stdlib"], name) for name in ("contextlib.py", "runpy.py")]
    reraising = importlib.util.find_spec("six")
    return (*folders, *standard, *((reraising.origin or "six.py",) if reraising else ()))


@functools.cache
def _folders(package: str) -> tuple[str, ...]:
    spec = importlib.util.find_spec(package)
    places = (spec and spec.submodule_search_locations) or ()
    return tuple(os.path.join(place, "") for place in places)


def cause(message: str) -> list[str]:
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
        stripped = line.strip()
        if not stripped or stripped.startswith(("[[", "Graph execution error")):
            continue
        # The frames of a Python function repeat lines, and the last line repeats the first.
        if line not in kept or "Traceback (most recent call last):" in kept:
            kept.append(line)
    return kept or message.splitlines()[:1]


def _op_in_function(error: tf.errors.OpError) -> Any:
    """Returns the op that failed, if it is in a branch or another function of the graph, else None.

    TensorFlow looks the op up only outside of functions, and its message lacks the name of the
    function. The message of the runtime's error, which it was handling, has that name.
    """
    handled: BaseException | None = error
    while isinstance(handled, tf.errors.OpError):
        match = _IN_FUNCTION.search(handled.message)
        if match:
            function = _function(error, match[1])
            if function is not None:
                with contextlib.suppress(KeyError):
                    return function.get_operation_by_name(match[2])
        handled = handled.__context__
    return None


def _function(error: tf.errors.OpError, name: str) -> Any:
    """Returns the graph of a function in the session that raised an error; None if it has none."""
    graph = graph_of(error)
    return None if graph is None else getattr(graph._get_function(name), "graph", None)


def graph_of(error: tf.errors.OpError) -> tf.Graph | None:
    """Returns the graph of the session that raised an error; None where none did."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        session = frame.f_locals.get("self")
        if isinstance(session, tf.compat.v1.Session):
            return session.graph
    return None


def _first_of_its_copies(op: Any) -> Any:
    """Returns the op of core 0 of which an op of another emulated core is a copy."""
    copied = op is not None and _OF_CORE.match(op.name)
    if copied:
        with contextlib.suppress(KeyError):
            return op.graph.get_operation_by_name(op.name[copied.end() :])
    return op


def line_of_program(op: Any) -> str | None:
    """Returns the line of the program that created an op; None if that is unknown."""
    frames = getattr(op, "traceback", None)
    own = [frame for frame in frames or () if is_of_program(frame.filename)]
    if not own:
        return None
    last = own[-1]
    source = linecache.getline(last.filename, last.lineno).strip()
    return f"{last.filename}, line {last.lineno}, in {last.name}: {source}".rstrip(": ")


def _is_of_library(op: Any) -> bool:
    """Returns whether this library created an op, and not a function of the program."""
    files = [frame.filename for frame in getattr(op, "traceback", None) or ()]
    own = [i for i, file in enumerate(files) if is_of_program(file)]
    ours = _folders("estimator_emb")
    # Every op of a program passes these files where paths are mapped.
    passed = (
        os.path.join("private", "file_paths.py"),
        os.path.join("private", "tensorflow_files.py"),
    )
    # If our frames are between the program's last line and the op, the op is the library's own.
    return not own or any(
        file.startswith(ours) and not file.endswith(passed) for file in files[own[-1] + 1 :]
    )


@functools.cache
def _short_class(kind: Any) -> type:
    def message_only(self: Any) -> str:
        return self.message

    def as_of_tensorflow(self: Any) -> Any:
        # The class of TensorFlow knows the arguments of its constructor.
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
