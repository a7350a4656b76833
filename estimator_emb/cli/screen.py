"""The display of `estimator-emb cluster`: the lines of all processes, above the state of each."""

import collections
import os
import re
import select
import shutil
import sys
import time
from collections.abc import Iterator, Sequence

_LONGEST_LINE = 1 << 20
"""Bytes; a longer line is shown in pieces."""

_SECONDS_BETWEEN_DRAWINGS = 0.2
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x1f\x7f-\x9f]")


_TIME = re.compile(rb"[IWEF]\d{4} [\d:.]+ +\d+ |\d{4}-\d\d-\d\d[ T][\d:.,]+ ")
"""How a line of absl's log, of TensorFlow's or of Python's begins."""


class Lines:
    """Divides a process's stream into lines that begin with `prefix`; `last` takes them without.

    A line that equals the line before it, apart from the time, is counted instead of shown.
    """

    def __init__(self, prefix: str, last: collections.deque[bytes]):
        self._prefix = prefix.encode()
        self._last = last
        self._rest = b""
        self._text = b""
        self._repeats = 0

    def feed(self, data: bytes) -> bytes:
        """Returns the lines that `data` completes, each with the prefix; b"" ends the last one."""
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
    """Writes lines, and on a terminal keeps the state of processes below; `closed` if unread."""

    def __init__(self) -> None:
        self.closed = False
        self.is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._drawing = b""
        self._drawn = 0
        self._drawn_at = 0.0

    def write(self, data: bytes, fd: int) -> None:
        """Writes whole lines to file descriptor 1 or 2, above the state."""
        if data:
            self._erase()
            self._put(data, fd)

    def say(self, text: str) -> None:
        self.write(f"estimator-emb: {text}\n".encode(errors="replace"), 2)

    def draw(self, states: Sequence[str], now: bool = False) -> None:
        """Shows one line for each process on a terminal; `now` even if it has just done so."""
        moment = time.monotonic()
        recent = moment - self._drawn_at < _SECONDS_BETWEEN_DRAWINGS
        if not self.is_terminal or (recent and self._drawn and not now):
            return
        size = shutil.get_terminal_size()
        # What moves the cursor or changes colours is left out.
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
