# SPDX-License-Identifier: Apache-2.0
"""Counts the seconds of a training in which it evaluates or saves, for its speed to leave out."""

import contextlib
import threading
import time
from collections.abc import Iterator


class _OfThread(threading.local):
    seconds = 0.0
    began: float | None = None


_this = _OfThread()


@contextlib.contextmanager
def pausing() -> Iterator[None]:
    """Counts what runs inside, in this thread; may be nested."""
    outer = _this.began is None
    if outer:
        _this.began = time.monotonic()
    try:
        yield
    finally:
        if outer and _this.began is not None:
            _this.seconds += time.monotonic() - _this.began
            _this.began = None


def clock() -> float:
    """Returns a time in seconds that stands still in this thread's pauses."""
    return (time.monotonic() if _this.began is None else _this.began) - _this.seconds
