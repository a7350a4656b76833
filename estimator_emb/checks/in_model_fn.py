# SPDX-License-Identifier: Apache-2.0
"""Records whether this thread runs a program's model_fn, for what is rejected only there."""

import contextlib
import threading
from collections.abc import Iterator

_thread = threading.local()


@contextlib.contextmanager
def running(has_tables: bool) -> Iterator[None]:
    """Marks this thread as running a model_fn, with or without embedding tables."""
    before = getattr(_thread, "has_tables", None)
    _thread.has_tables = has_tables
    try:
        yield
    finally:
        _thread.has_tables = before


def is_running(with_tables: bool = False) -> bool:
    """Returns whether this thread runs a model_fn, or only whether one with embedding tables."""
    has_tables: bool | None = getattr(_thread, "has_tables", None)
    return bool(has_tables) if with_tables else has_tables is not None
