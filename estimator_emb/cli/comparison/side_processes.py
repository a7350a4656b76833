"""Describes the two sides of `estimator-emb compare`, and runs them in processes."""

import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, TextIO

from estimator_emb.cli import quiet_start
from estimator_emb.cli import screen as screen_lib
from estimator_emb.cli.comparison import CannotCompare
from estimator_emb.reporting.text_columns import counted

_SECONDS_BETWEEN_LINES = 10.0
_LAST_LINES = 15
OUT = "{out}"
"""Placeholder for a side's output folder, in the program's arguments and environment variables."""

_PACKAGE = pathlib.Path(__file__).absolute().parents[2]
_PROGRAM = _PACKAGE / "cli" / "bin" / "compare_worker.py"


@dataclasses.dataclass(frozen=True)
class Side:
    """A side as the user requests it: a program to run, or the folder of a finished run."""

    label: str
    settings: str
    stock: bool = False
    launch: dict[str, Any] = dataclasses.field(default_factory=dict)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    python: str | None = None
    program: tuple[str, ...] = ()
    model_dir: str | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Returns the program's arguments, without its file or module."""
        return self.program[2 if self.program[:1] == ("-m",) else 1 :]

    def has_out(self) -> bool:
        return any(OUT in text for text in (*self.arguments, *self.environment.values()))

    def writing_to(self, folder: str) -> "Side":
        """Returns this side with `{out}` replaced by `folder` in arguments and environment."""
        name = self.program[: len(self.program) - len(self.arguments)]
        arguments = (text.replace(OUT, folder) for text in self.arguments)
        environment = {key: text.replace(OUT, folder) for key, text in self.environment.items()}
        return dataclasses.replace(self, program=(*name, *arguments), environment=environment)

    def described(self) -> str:
        if self.model_dir is not None:
            return self.model_dir
        parts = [self.settings or "as it is"]
        if self.python:
            parts.append(self.python)
        return ", ".join([*parts, shlex.join(self.program)])


class SideRunner:
    """Runs sides in sequence in a temporary `folder`, and shows their progress."""

    def __init__(self, folder: str, group: int):
        self._folder = folder
        self._group = group
        self._screen = screen_lib.Screen()

    def run_side(self, side: Side, steps: int, again: bool = False, **start: Any) -> list[Any]:
        """Runs a side to its end and returns the recorded events.

        `start` sets fields of side.json. Raises CannotCompare if the side fails or does not train.
        """
        name = f"{side.label}{' again' if again else ''}"
        folder = os.path.join(self._folder, name.replace(" ", "-"))
        out = os.path.join(folder, "out")
        for new in (out, os.path.join(folder, "tmp")):
            os.makedirs(new)
        side = side.writing_to(out)
        given = {
            "kind": "stock" if side.stock else "ours",
            "launch": side.launch,
            "program": side.program,
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
        with open(log, "wb") as output, open(os.path.join(folder, "record.jsonl"), "w+") as lines:
            record = _Record(lines, name, steps)
            popen = subprocess.Popen(
                [side.python or sys.executable, str(_PROGRAM), folder],
                env=self._environment(side, folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: os.setpgid(0, self._group),
            )
            try:
                self._watch(popen, record)
            finally:
                popen.kill()
                popen.wait()
                self._screen.draw([], now=True)
            record.read()
        self._check(side, name, popen.returncode, record, log)
        self._screen.say(record.summary())
        return record.events

    def _environment(self, side: Side, folder: str) -> dict[str, str]:
        variables = dict(os.environ)
        # After `python -m`, this module is loaded and may have set the variable.
        keras = sys.modules.get("estimator_emb.compat.legacy_keras")
        if side.stock and keras is not None and keras.is_variable_ours:
            variables.pop("TF_USE_LEGACY_KERAS", None)
        return {
            quiet_start.LEVEL: "2",
            **variables,
            **side.environment,
            "PYTHONHASHSEED": "0",  # Fixes the order of sets of strings.
            "PYTHONDONTWRITEBYTECODE": "1",
            # Used by tempfile, and by Estimators without a model_dir.
            "TMPDIR": os.path.join(folder, "tmp"),
        }

    def _watch(self, popen: subprocess.Popen[bytes], record: "_Record") -> None:
        shown = time.monotonic()
        while popen.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                popen.wait(0.2)
            record.read()
            self._screen.draw([record.state()])
            if not self._screen.is_terminal and time.monotonic() - shown >= _SECONDS_BETWEEN_LINES:
                shown = time.monotonic()
                self._screen.say(record.state())

    def _check(self, side: Side, name: str, status: int, record: "_Record", log: str) -> None:
        program = " ".join(side.program[:2]) if side.program[0] == "-m" else side.program[0]
        refused = next((one for one in record.events if one["event"] == "refused"), None)
        if refused is not None:
            raise CannotCompare(f"{name} cannot run: {refused['why']}.")
        trained = record.count("step")
        when = f" after {trained:,} steps" if trained else " before it trained a step"
        if status < 0:
            how = f"was ended by {signal.Signals(-status).name}"
        elif status:
            how = f"failed with status {status}"
        elif not any(one["event"] == "end" for one in record.events):
            how = "was ended by os._exit"
        elif not trained:
            how, when = "ended without training a step of an Estimator", ""
        else:
            return
        raise CannotCompare(f"{name}: {program} {how}{when}.{_end_of(log, side.label)}")


def _end_of(log: str, label: str) -> str:
    """Copies a log to a file that stays, and returns a sentence with its path and last lines."""
    with open(log, "rb") as file:
        last = collections.deque(quiet_start.without_start(file), _LAST_LINES)
    handle, kept = tempfile.mkstemp(f"-{label}.log", "estimator-emb-compare-")
    os.close(handle)
    shutil.copyfile(log, kept)
    lines = "".join(f"    {line.decode(errors='replace').rstrip()}\n" for line in last)
    return f" What it wrote is in {kept}" + (
        f"; the last lines:\n{lines.rstrip()}" if lines else "."
    )


class _Record:
    def __init__(self, file: TextIO, name: str, limit: int):
        self.events: list[dict[str, Any]] = []
        self._file = file
        self._rest = ""
        self._name = name
        self._limit = limit
        self._started = time.monotonic()

    def read(self) -> None:
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        self.events += map(json.loads, lines)

    def count(self, event: str) -> int:
        return sum(one["event"] == event for one in self.events)

    def state(self) -> str:
        steps = self.count("step")
        if not self.events:
            state = "starts"
        elif self.events[-1]["event"] == "step":
            state = f"step {steps:,} of {self._limit:,}, loss {self.events[-1]['loss']:.6g}"
        else:
            state = f"{steps:,} steps trained" if steps else "builds its graph"
        return f"{self._name}: {state}, {self._seconds():.0f} s"

    def summary(self) -> str:
        environment = next(one for one in self.events if one["event"] == "environment")
        parts = [f"{self._name}: TensorFlow {environment['tensorflow']}"]
        for event, *nouns in (
            ("step", "step"),
            ("evaluation", "evaluation"),
            ("predictions", "call of predict", "calls of predict"),
        ):
            if count := self.count(event):
                parts.append(counted(count, *nouns))
        return f"{', '.join(parts)}, in {self._seconds():.0f} s."

    def _seconds(self) -> float:
        return time.monotonic() - self._started
