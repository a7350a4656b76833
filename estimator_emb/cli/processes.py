"""The processes of `estimator-emb cluster`, which end when it does.

They are a process group of their own. Its first member ends all others as soon as the pipe that it
reads ends: when the command is done, and also when it is killed.
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
"""The signals that end the command."""

_HEAD_OF_LOG = re.compile(r"^[IWEF]\d{4} \S+ +\d+ \S+\] ")
"""The level, time and place that absl and TensorFlow write before a message."""


@contextlib.contextmanager
def handled_signals(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Has `handler` called inside for each of SIGNALS, by its number and a frame."""
    # Ignored signals stay ignored: `nohup`, and a shell's background, ask for it.
    # None, a handler that C has set, could not be put back.
    numbers = [one for one in SIGNALS if signal.getsignal(one) not in (signal.SIG_IGN, None)]
    before = {one: signal.signal(one, handler) for one in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextlib.contextmanager
def process_group() -> Iterator[int]:
    """Yields the id of a process group that ends with this process, however this one ends."""
    reading, writing = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        with contextlib.suppress(BaseException):
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            os.close(writing)
            os.setpgid(0, 0)
            os.read(reading, 1)  # Until the other end is closed.
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
    """A process of the cluster, `told` if sent a signal; times are of `time.monotonic`."""

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
