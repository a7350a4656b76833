"""Progress bars of trainings and of the command."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tqdm

from estimator_emb.reporting import console


class _Cell:
    """A stream for tqdm that keeps its last line as one output of a notebook's cell.

    In a stream, each state of the bar would stay in the saved notebook, after a carriage return.
    """

    encoding = "utf-8"
    """Tells tqdm that it may draw with block characters."""

    def __init__(self) -> None:
        self._output: Any = None

    def write(self, text: str) -> None:
        line = text.rpartition("\r")[2].rstrip("\n")
        if not line.strip():
            return
        shown = {"text/plain": line}
        if self._output is None:
            self._output = sys.modules["IPython"].display.display(shown, raw=True, display_id=True)
        else:
            self._output.update(shown, raw=True)

    def flush(self) -> None:
        """Does nothing: `write` shows the line at once."""


def _in_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_shell is not None and hasattr(get_shell(), "kernel")


def bar(**how: Any) -> Any:
    """Returns a tqdm bar with arguments `how`, as wide as the terminal (80 columns if unknown)."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        columns = 0
    size: dict[str, Any] = {"dynamic_ncols": True} if columns else {"ncols": 80}
    stream = _Cell() if _in_notebook() else console.stream()
    return tqdm.tqdm(file=stream, **size, **how)


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
