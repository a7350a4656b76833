# SPDX-License-Identifier: Apache-2.0
"""The two sides of `estimator-emb compare`, and the processes that run them."""

import collections
import dataclasses
import json
import os
import pathlib
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from estimator_emb.cli import processes, quiet_start
from estimator_emb.cli import screen as screen_lib
from estimator_emb.messages.text_columns import counted

_MOST_BYTES = 2 << 30
"""A side has a checkpoint of every step only where all of them are no larger than this."""

_SEED = 1
_SECONDS_BETWEEN_LINES = 10.0
_LAST_LINES = 15
_PACKAGE = pathlib.Path(__file__).absolute().parents[1]
_PROGRAM = _PACKAGE / "cli" / "bin" / "side.py"


class CannotRun(Exception):
    """The error of a side that did not do what is to be compared; its text says why."""


class Interrupted(Exception):
    """The arrival of a signal, given by its number, that ends the command."""


@dataclasses.dataclass(frozen=True)
class Side:
    """A side as the user asks for it: a program to run, or the folder of a finished run."""

    label: str
    settings: str
    stock: bool = False
    launch: dict[str, Any] = dataclasses.field(default_factory=dict)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    python: str | None = None
    program: tuple[str, ...] = ()
    model_dir: str | None = None

    def described(self) -> str:
        if self.model_dir is not None:
            return self.model_dir
        parts = [self.settings or "as it is"]
        if self.python:
            parts.append(self.python)
        return ", ".join([*parts, shlex.join(self.program)])


class SideRunner:
    """Runs sides one after the other, into a temporary `folder`, and shows their progress."""

    def __init__(self, folder: str, group: int):
        self._folder = folder
        self._group = group
        self._screen = screen_lib.Screen()

    def run_side(self, side: Side, steps: int, again: bool = False, **start: Any) -> list[Any]:
        """Runs a side to its end and returns its events; `bin/side.py` describes `start`.

        Raises CannotRun where it did not train or failed, and Interrupted where a signal came.
        """
        name = f"{side.label}{' again' if again else ''}"
        folder = os.path.join(self._folder, name.replace(" ", "-"))
        os.makedirs(os.path.join(folder, "tmp"))
        given = {
            "kind": "stock" if side.stock else "ours",
            "launch": side.launch,
            "program": side.program,
            "most_bytes": _MOST_BYTES,
            "seed": _SEED,
            "package": None if side.python or side.stock else str(_PACKAGE.parent),
            "steps": steps,
            "start": [],
            "all_start": False,
            "every_step": None,
            **start,
        }
        with open(os.path.join(folder, "side.json"), "w") as file:
            json.dump(given, file)
        log = os.path.join(folder, "log")
        started = time.monotonic()
        record = _Record(os.path.join(folder, "record.jsonl"))
        with processes.caught_signals() as wakeup:
            with open(log, "wb") as output:
                popen = subprocess.Popen(
                    [side.python or sys.executable, str(_PROGRAM), folder],
                    env=self._environment(side, folder),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    preexec_fn=lambda: os.setpgid(0, self._group),
                )
            try:
                self._watch(name, popen, record, steps, started, wakeup)
            finally:
                if popen.poll() is None:
                    popen.kill()
                    popen.wait()
        record.read()
        self._check(side, name, popen.returncode, record, log)
        seconds = time.monotonic() - started
        self._screen.say(f"{name}: {record.summary()}, in {seconds:.0f} s.")
        return record.events

    def _environment(self, side: Side, folder: str) -> dict[str, str]:
        variables = dict(os.environ)
        # Imported where the command was started by `python -m`, and may have set the variable.
        keras = sys.modules.get("estimator_emb.compat.legacy_keras")
        if side.stock and keras is not None and keras.is_variable_ours:
            variables.pop("TF_USE_LEGACY_KERAS", None)
        return {
            quiet_start.LEVEL: "2",
            **variables,
            **side.environment,
            "PYTHONHASHSEED": "0",  # The order of a set of texts.
            "PYTHONDONTWRITEBYTECODE": "1",
            # Where tempfile, and Estimators without a model_dir, write.
            "TMPDIR": os.path.join(folder, "tmp"),
        }

    def _watch(
        self,
        name: str,
        popen: subprocess.Popen[bytes],
        record: "_Record",
        steps: int,
        started: float,
        wakeup: int,
    ) -> None:
        shown = started
        while popen.poll() is None:
            readable, _, _ = select.select([wakeup], [], [], 0.2)
            if readable:
                for number in os.read(wakeup, 1024):
                    if number in processes.SIGNALS:
                        self._screen.draw([], now=True)
                        raise Interrupted(number)
            record.read()
            now = time.monotonic()
            state = f"{name}: {record.state(steps)}, {now - started:.0f} s"
            self._screen.draw([state])
            if not self._screen.is_terminal and now - shown >= _SECONDS_BETWEEN_LINES:
                shown = now
                self._screen.say(state)
        self._screen.draw([], now=True)

    def _check(self, side: Side, name: str, status: int, record: "_Record", log: str) -> None:
        program = " ".join(side.program[:2]) if side.program[0] == "-m" else side.program[0]
        refused = next((one for one in record.events if one["event"] == "refused"), None)
        if refused is not None:
            raise CannotRun(f"{name} cannot run: {refused['why']}.")
        trained = record.steps
        when = f"after {trained:,} steps" if trained else "before it trained a step"
        if status < 0:
            how = f"was ended by {signal.Signals(-status).name}"
        elif status:
            how = f"failed with status {status}"
        elif not any(one["event"] == "end" for one in record.events):
            how = "was ended by os._exit"
        elif not trained:
            raise CannotRun(
                f"{name}: {program} ended without training a step of an Estimator."
                + _end_of(log, side.label)
            )
        else:
            return
        raise CannotRun(f"{name}: {program} {how} {when}.{_end_of(log, side.label)}")


def _end_of(log: str, label: str) -> str:
    """Keeps a log; returns its new path and its last lines as a sentence."""
    with open(log, errors="replace") as file:
        wanted = (line for line in file if not quiet_start.is_of_start(line.encode()))
        last = collections.deque(wanted, _LAST_LINES)
    handle, kept = tempfile.mkstemp(f"-{label}.log", "estimator-emb-compare-")
    os.close(handle)
    shutil.copyfile(log, kept)
    lines = "".join(f"    {line.rstrip()}\n" for line in last)
    return f" What it wrote is in {kept}" + (
        f"; the last lines:\n{lines.rstrip()}" if lines else "."
    )


class _Record:
    def __init__(self, path: str):
        self.events: list[dict[str, Any]] = []
        self._path = path
        self._position = 0

    def read(self) -> None:
        if not os.path.exists(self._path):
            return
        with open(self._path) as file:
            file.seek(self._position)
            for line in iter(file.readline, ""):
                if not line.endswith("\n"):
                    break  # It is being written.
                self._position += len(line.encode())
                self.events.append(json.loads(line))

    @property
    def steps(self) -> int:
        return self._count("step")

    def _count(self, event: str) -> int:
        return sum(one["event"] == event for one in self.events)

    def state(self, steps: int) -> str:
        if not self.events:
            return "starts"
        last = self.events[-1]
        if last["event"] == "step":
            return f"step {self.steps:,} of {steps:,}, loss {last['loss']:.6g}"
        return f"{self.steps:,} steps trained" if self.steps else "builds its graph"

    def summary(self) -> str:
        environment = next(one for one in self.events if one["event"] == "environment")
        parts = [f"TensorFlow {environment['tensorflow']}"]
        for event, *nouns in (
            ("step", "step"),
            ("evaluation", "evaluation"),
            ("predictions", "call of predict", "calls of predict"),
        ):
            count = self._count(event)
            if count or event == "step":
                parts.append(counted(count, *nouns))
        return ", ".join(parts)
