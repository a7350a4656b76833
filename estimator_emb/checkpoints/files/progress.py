# SPDX-License-Identifier: Apache-2.0
"""Counts the bytes that are done, for the `progress` functions of callers."""

from collections.abc import Callable
from typing import Any


def counter(progress: Callable[[int, int], Any] | None, total: int) -> Callable[[int], None]:
    """Returns a function that adds bytes to those done, and tells `progress`, if any."""
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        if progress:
            progress(done, total)

    return advance
