"""Progress bars of trainings and of the command."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tqdm

from estimator_emb.reporting import console


def bar(**how: Any) -> Any:
    """Returns a tqdm bar with arguments `how`, as wide as the terminal (80 columns if unknown)."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        columns = 0
    size: dict[str, Any] = {"dynamic_ncols": True} if columns else {"ncols": 80, "nrows": 24}
    return tqdm.tqdm(file=console.stream(), **size, **how)


@contextlib.contextmanager
def work_bar(
    unit: str = "B", stays: bool = True, after: float = 2.0
) -> Iterator[Callable[[int, int], None]]:
    """Yields a function `progress(done, total)` that updates a bar on a terminal.

    The bar appears if the work takes more than `after` seconds. If `stays`, it remains afterwards.
    """
    scaled = unit == "B"
    with bar(unit=unit, unit_scale=scaled, leave=stays, delay=after, disable=None) as drawn:

        def progress(done: int, total: int) -> None:
            drawn.total = total
            drawn.update(done - drawn.n)

        yield progress
