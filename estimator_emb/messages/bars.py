# SPDX-License-Identifier: Apache-2.0
"""The progress bar of trainings and of the command."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import tqdm

from estimator_emb.messages import console

_SECONDS_BEFORE = 2.0
_SECONDS_BETWEEN = 0.5


def bar(**how: Any) -> Any:
    """Returns a bar of tqdm, by its arguments, as wide as the terminal."""
    return tqdm.tqdm(file=console.stream(), **_size(), **how)


@contextlib.contextmanager
def of_work(unit: str = "B", stays: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Yields a function of how much is done, and in all, for a bar of work that takes seconds.

    Only a terminal has it. It `stays` where the work is done.
    """
    state: list[int] = []
    began = time.time()
    ended = threading.Event()

    def progress(done: int, total: int) -> None:
        state[:] = done, total

    def draw() -> None:
        over = ended.wait(_SECONDS_BEFORE)
        while not (over or state):
            over = ended.wait(_SECONDS_BETWEEN)
        if over:
            return
        with bar(total=state[1], unit=unit, unit_scale=unit == "B", leave=stays) as drawn:
            drawn.start_t = began
            while not over:
                over = ended.wait(_SECONDS_BETWEEN)
                drawn.n, drawn.total = state
                drawn.refresh()

    if not console.stream().isatty():
        yield progress
        return
    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        ended.set()
        thread.join()


def _size() -> dict[str, Any]:
    """Returns tqdm's arguments for the size of the terminal, which may not know it."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        columns = 0
    return {"dynamic_ncols": True} if columns else {"ncols": 80, "nrows": 24}
