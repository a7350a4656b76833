"""Hides log lines that TensorFlow's C++ code writes about this machine during import.

TF_CPP_MIN_LOG_LEVEL cannot hide lines written before it is read, or notes logged as errors.
"""

import contextlib
import ctypes
import os
import re
import signal
from collections.abc import Iterable, Iterator

LEVEL = "TF_CPP_MIN_LOG_LEVEL"
"""Environment variable with the lowest level that TensorFlow's C++ logs. The user's value wins."""

_LINE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\)|"
    rb"(?:[IW]\d{4} \S+ +\d+|\d{4}-\d\d-\d\d \S+: [IW]) \S+:\d+\] |"
    rb"(?:E\d{4} \S+ +\d+|\d{4}-\d\d-\d\d \S+: E) \S+:\d+\] "
    rb"(?:Unable to register cu\w+ factory|failed call to cuInit|computation placer already)"
)
"""Matches notes and warnings in TensorFlow's two log formats, and harmless errors."""
_TRACE = re.compile(rb"=== Source Location Trace: ===|external/\S+\.cc:\d+$")
"""Matches an error's origin. TensorFlow 2.22 writes it below the error, before an empty line."""


def without_start(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the lines to keep, without startup lines and the traces that belong to them."""
    left_out = in_trace = False
    for line in lines:
        ends_trace = in_trace and not line.strip()
        in_trace = left_out and _TRACE.match(line) is not None
        left_out = in_trace or ends_trace or _LINE.match(line) is not None
        if not left_out:
            yield line


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drops startup lines from file descriptor 2 inside, unless the user asks for them by LEVEL.

    A child process passes on all other lines, so that they survive a crash of this process.
    """
    if os.environ.setdefault(LEVEL, "2") not in ("2", "3"):
        yield
        return
    try:
        stderr = os.dup(2)
    except OSError:  # File descriptor 2 is closed.
        yield
        return
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            os.close(writing)
            _pass_on(reading, stderr)
        finally:
            os._exit(0)
    os.close(reading)
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.waitpid(child, 0)


def _pass_on(reading: int, stderr: int) -> None:
    with open(reading, "rb") as lines, open(stderr, "wb") as out:
        for line in without_start(lines):
            out.write(line)
            out.flush()


def look_for_gpus() -> None:
    """Makes TensorFlow look for GPUs now if no driver is installed, to hide its error about that.

    With a driver, TensorFlow looks later, after the program has set environment variables.
    """
    import tensorflow as tf

    if tf.test.is_built_with_cuda():
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            tf.config.list_physical_devices()
