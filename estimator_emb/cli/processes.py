"""Ends the child processes of `estimator-emb cluster` together with the command.

The children form a process group. Its first process reads a pipe that the command keeps open. The
pipe closes when the command ends or is killed, and then this process kills the group.
"""

import collections
import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end the command."""

_HEAD_OF_LOG = re.compile(r"^[IWEF]\d{4} \S+ +\d+ \S+\] ")
"""Matches the level, time and place that absl and TensorFlow write before a message."""


@contextlib.contextmanager
def handled_signals(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Calls `handler(number, frame)` for each of SIGNALS that arrives inside."""
    # Ignored signals stay ignored, as `nohup` and background shells want. A handler set by C code
    # stays too. Python reads it as None, and could not restore it.
    numbers = [one for one in SIGNALS if signal.getsignal(one) not in (signal.SIG_IGN, None)]
    before = {one: signal.signal(one, handler) for one in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextlib.contextmanager
def process_group() -> Iterator[int]:
    """Yields the id of a process group that is killed when this process ends, however it ends."""
    reading, writing = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        with contextlib.suppress(BaseException):
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            os.close(writing)
            os.setpgid(0, 0)
            os.read(reading, 1)  # Blocks until the command closes its end.
            os.killpg(0, signal.SIGKILL)
        os._exit(1)
    os.close(reading)
    os.setpgid(keeper, keeper)
    try:
        yield keeper
    finally:
        os.close(writing)
        os.waitpid(keeper, 0)


@dataclasses.dataclass(eq=False)
class Process:
    """A process of the cluster. `told` is True after a signal. Times are of `time.monotonic`."""

    job: str
    name: str
    popen: subprocess.Popen[bytes]
    last: collections.deque[bytes]
    started: float
    ended: float | None = None
    told: bool = False

    def send(self, number: int) -> None:
        if self.ended is None:
            self.told = True
            self.popen.send_signal(number)

    def how_ended(self) -> str:
        status = self.popen.returncode
        if status >= 0:
            return f"ended with status {status}"
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-status).name}"
        return f"was ended by signal {-status}"

    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.started

    def state(self) -> str:
        seconds = self.seconds()
        line = self.last[-1].decode(errors="replace") if self.last else ""
        line = _HEAD_OF_LOG.sub("", line)
        state = "runs" if self.ended is None else self.how_ended()
        return f"{self.name:<10} {int(seconds) // 60}:{int(seconds) % 60:02d} {state:<20} {line}"
