"""Terminal display of `estimator-emb cluster`: output lines above status lines."""

import collections
import os
import re
import select
import shutil
import sys
import time
from collections.abc import Iterator, Sequence

_LONGEST_LINE = 1 << 20
"""Bytes. Longer lines are shown in pieces."""

_SECONDS_BETWEEN_DRAWINGS = 0.2
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x1f\x7f-\x9f]")


_OF_GLOO = b"[Gloo] Rank "
"""Start of the lines with which JAX hosts report each connection."""
_TIME = re.compile(rb"[IWEF]\d{4} [\d:.]+ +\d+ |\d{4}-\d\d-\d\d[ T][\d:.,]+ ")
"""Matches the time at the start of a log line of absl, TensorFlow or Python."""


class Lines:
    """Splits a process's output into lines with a `prefix`. `last` keeps the lines without it.

    A line that equals the previous line, except for the time, is counted instead of shown.
    """

    def __init__(self, prefix: str, last: collections.deque[bytes]):
        self._prefix = prefix.encode()
        self._last = last
        self._rest = b""
        self._text = b""
        self._repeats = 0

    def feed(self, data: bytes) -> bytes:
        """Returns the prefixed lines that `data` completes. b"" completes the last line."""
        is_end = not data
        data = data or (b"\n" if self._rest else b"")
        *lines, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest[:_LONGEST_LINE])
            self._rest = self._rest[_LONGEST_LINE:]
        lines = list(self._counted(lines, is_end))
        self._last.extend(lines)
        return b"".join(b"%s%s\n" % (self._prefix, line) for line in lines)

    def _counted(self, lines: list[bytes], is_end: bool) -> Iterator[bytes]:
        for line in lines:
            if line.startswith(_OF_GLOO):
                continue
            text = _TIME.sub(b"", line, count=1) if _TIME.match(line) else line
            if text == self._text and 0 < len(line) < _LONGEST_LINE:
                self._repeats += 1
                continue
            yield from self._count()
            self._text = text
            yield line
        if is_end:
            yield from self._count()

    def _count(self) -> Iterator[bytes]:
        if self._repeats:
            times = "1 time" if self._repeats == 1 else f"{self._repeats:,} times"
            yield f"(the same line {times} more)".encode()
        self._repeats = 0


class Screen:
    """Writes lines and, on a terminal, status lines below. `closed` means that writing failed."""

    def __init__(self) -> None:
        self.closed = False
        self.is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._drawing = b""
        self._drawn = 0
        self._drawn_at = 0.0

    def write(self, data: bytes, fd: int) -> None:
        """Writes whole lines to file descriptor 1 or 2, above the status lines."""
        if data:
            self._erase()
            self._put(data, fd)

    def say(self, text: str) -> None:
        self.write(f"estimator-emb: {text}\n".encode(errors="replace"), 2)

    def draw(self, states: Sequence[str], now: bool = False) -> None:
        """Draws the status lines on a terminal. `now` skips the minimum time between drawings."""
        moment = time.monotonic()
        recent = moment - self._drawn_at < _SECONDS_BETWEEN_DRAWINGS
        if not self.is_terminal or (recent and self._drawn and not now):
            return
        size = shutil.get_terminal_size()
        # Removes sequences that move the cursor or change colours.
        shown = (_CONTROL.sub("", one.replace("\t", " ")) for one in states)
        lines = [one[: size.columns - 1] for one in shown][: max(size.lines - 1, 1)]
        drawing = "".join(f"{line}\n" for line in lines).encode(errors="replace")
        if self._drawn and drawing == self._drawing:
            return
        self._erase()
        self._put(drawing, 2)
        self._drawing, self._drawn, self._drawn_at = drawing, len(lines), moment

    def _erase(self) -> None:
        if self._drawn:
            self._put(b"\x1b[%dA\x1b[J" % self._drawn, 2)
            self._drawn = 0

    def _put(self, data: bytes, fd: int) -> None:
        while data and not self.closed:
            try:
                data = data[os.write(fd, data) :]
            except BlockingIOError:
                select.select([], [fd], [])
            except OSError:  # A closed pipe, a terminal that is gone, a full disk.
                self.closed = True
