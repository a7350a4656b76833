# SPDX-License-Identifier: Apache-2.0
"""Leaves out what TensorFlow's C++ says of this machine while it is imported.

It writes these lines before it reads TF_CPP_MIN_LOG_LEVEL, or as errors which are none.
"""

import contextlib
import ctypes
import os
import re
import signal
from collections.abc import Iterator

LEVEL = "TF_CPP_MIN_LOG_LEVEL"
"""The variable that says what TensorFlow's C++ leaves out. Where the user has set it, it counts."""

_HEAD = rb"(?:(?P<glog>[IWE])\d{4} \S+ +\d+ |\d{4}-\d\d-\d\d \S+: (?P<dated>[IWE]) )\S+:\d+\] "
_NO_ERRORS = rb"Unable to register cu\w+ factory|failed call to cuInit|computation placer already"
_LINE = re.compile(_HEAD + rb"(?P<text>.*)", re.DOTALL)
_BEFORE = b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"


def is_of_start(line: bytes) -> bool:
    """Returns whether a line is one of those that are left out."""
    found = _LINE.match(line)
    if found is None:
        return line.rstrip() == _BEFORE
    is_error = b"E" in (found["glog"], found["dated"])
    return not is_error or bool(re.match(_NO_ERRORS, found["text"]))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Leaves such lines out of file descriptor 2 inside, unless the user has chosen a level.

    A process of its own passes everything else on, so that nothing is lost where this one crashes.
    """
    if LEVEL in os.environ:
        yield
        return
    os.environ[LEVEL] = "2"
    try:
        stderr = os.dup(2)
    except OSError:  # It is closed.
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
    with open(reading, "rb", buffering=0) as lines, open(stderr, "wb", buffering=0) as out:
        rest = b""
        while data := lines.read(1 << 16):
            *whole, rest = (rest + data).splitlines(keepends=True) + [b""]
            if not data.endswith(b"\n"):
                rest = whole.pop()
            out.write(b"".join(line for line in whole if not is_of_start(line)))
        if not is_of_start(rest):
            out.write(rest)


def look_for_gpus() -> None:
    """Has TensorFlow look for GPUs, if no driver is installed: it says so as an error.

    With a driver, it does so when the program first asks, by the variables that this has set.
    """
    import tensorflow as tf

    if tf.test.is_built_with_cuda():
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            tf.config.list_physical_devices()
