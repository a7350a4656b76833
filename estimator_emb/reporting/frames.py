"""Distinguishes the program's lines from the lines of the libraries that it trains with."""

import contextlib
import functools
import importlib.util
import linecache
import os
import re
import sysconfig
import types
from collections.abc import Iterable
from typing import Any

OURS = ("estimator_emb", "feature_columns", "tensorflow_estimator")
KERAS = ("keras", "tf_keras")
_LIBRARIES = (*OURS, *KERAS, "absl", "six", "tensorboard", "tensorflow")
_STANDARD = os.path.join(sysconfig.get_path("stdlib"), "")
_OF_CORE = re.compile(r"core_\d+(_\d+)?/")


def is_of_program(file: str) -> bool:
    """Returns whether a file belongs to the program, not to Python or a library."""
    if file.startswith("<") or "__autograph_generated_file" in os.path.basename(file):
        return False
    standard = file.startswith(_STANDARD) and f"-packages{os.sep}" not in file
    return not (standard or is_in(file, _LIBRARIES))


def is_in(file: str, packages: tuple[str, ...]) -> bool:
    """Returns whether a file is in one of these installed packages."""
    return file.startswith(_places(packages))


@functools.cache
def _places(packages: tuple[str, ...]) -> tuple[str, ...]:
    places: list[str] = []
    for package in packages:
        if spec := importlib.util.find_spec(package):
            folders = spec.submodule_search_locations or ()
            # A single-file module has no folders.
            places += [os.path.join(folder, "") for folder in folders] or [str(spec.origin)]
    return tuple(places)


def program_frames(frames: types.TracebackType | None) -> types.TracebackType | None:
    """Returns a traceback with the program's frames only, if there are any."""
    program_frames = []
    while frames is not None:
        if _is_frame_of_program(frames.tb_frame):
            program_frames.append(frames)
        frames = frames.tb_next
    kept = None
    for frame in reversed(program_frames):
        # tb_lineno, because the frame's own line has moved on in a `finally` or after a `with`.
        kept = types.TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept


def _is_frame_of_program(frame: types.FrameType) -> bool:
    file = frame.f_code.co_filename
    if not file.startswith("<") or file.startswith("<frozen "):
        return is_of_program(file)
    module = str(frame.f_globals.get("__name__"))
    return file != "<__array_function__ internals>" and module.split(".")[0] not in _LIBRARIES


def innermost(passed: Iterable[Any]) -> Any:
    """Returns the program's innermost frame in `passed`, if any."""
    return next((one for one in reversed([*passed]) if is_of_program(one.filename)), None)


def line_of_program(op: Any) -> str | None:
    """Returns the line of the program that created an op, if it is known."""
    last = innermost(traceback_of(op))
    return None if last is None else shown(last)


def shown(frame: Any) -> str:
    """Returns the place and the source line of a frame."""
    source = linecache.getline(frame.filename, frame.lineno).strip()
    return f"{frame.filename}, line {frame.lineno}, in {frame.name}: {source}".rstrip(": ")


def made_by(op: Any) -> str:
    """Returns a sentence with the line of the program that created an op, or ''."""
    op = _on_first_core(op)
    line = line_of_program(op)
    return f"The op {op.name!r} was made by {line}" if line and not _is_of_library(op) else ""


def traceback_of(op: Any) -> Any:
    """Returns the frames that created an op, outermost first, or () if they are unknown."""
    return getattr(op, "traceback", None) or ()


def _on_first_core(op: Any) -> Any:
    """Returns the op of core 0 if `op` is its copy on another emulated core, else `op`."""
    copied = op is not None and _OF_CORE.match(op.name)
    if copied:
        with contextlib.suppress(KeyError):
            return op.graph.get_operation_by_name(op.name[copied.end() :])
    return op


def is_ours(op: Any) -> bool:
    """Returns whether this package created an op, not another library."""
    files = (frame.filename for frame in reversed(traceback_of(op)))
    last = next((file for file in files if not is_in(file, ("tensorflow", *KERAS))), "")
    return is_in(last, ("estimator_emb", "feature_columns"))


def _is_of_library(op: Any) -> bool:
    files = [frame.filename for frame in traceback_of(op)]
    while files and not is_of_program(files[-1]):
        file = files.pop()  # Each call of a Keras layer passes `keras_overrides`.
        if is_in(file, ("estimator_emb",)) and not file.endswith("keras_overrides.py"):
            return True
    return False
