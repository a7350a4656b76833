# SPDX-License-Identifier: Apache-2.0
"""The two sides of `estimator-emb compare`: what they are asked to be, and their processes."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from estimator_emb.cli import parsers, processes, programs
from estimator_emb.cli import screen as screen_lib

STOCK = "stock"
VARIABLES = tuple(
    f"ESTIMATOR_EMB_{name}"
    for name in (
        "BAD_IDS CACHE COMPILER_PYTHON DEVICE FULL_TRACEBACK NATIVE NATIVE_SANITIZE SHARDS TABLES "
        "TABLE_SUMMARIES TOPOLOGY WAIT_LIMIT"
    ).split()
)
"""Environment variables of this package, of which a misspelt one would change nothing."""

MOST_BYTES = 2 << 30
"""How large the checkpoints of a side may be in all if there is one of every step."""

_SEED = 1
_SECONDS_BETWEEN_LINES = 10.0
_LAST_LINES = 15
_SETTING = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.S)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_RUNNER = os.path.join(_PACKAGE, "comparison", "processes", "side.py")


class CannotRun(Exception):
    """A side that did not do what is to be compared; the text says why, in a line or more."""


class Interrupted(Exception):
    """A signal that ends the command; the argument is its number."""


@dataclasses.dataclass(frozen=True)
class Side:
    """What one side is asked to be.

    Attributes:
      label: 'A' or 'B'.
      settings: as the user wrote them.
      stock: whether tensorflow-estimator runs it without this package.
      options: of `estimator-emb run`.
      environment: what is added to that of the command.
      python: another interpreter, or None for this one.
      program: a file or '-m' and a module, and the arguments.
      model_dir: the folder of a finished run, which is compared in place of a new one.
    """

    label: str
    settings: str
    stock: bool = False
    options: tuple[str, ...] = ()
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    python: str | None = None
    program: tuple[str, ...] = ()
    model_dir: str | None = None

    def described(self) -> str:
        """Returns what the user has said of this side, in a line."""
        if self.model_dir is not None:
            return self.model_dir
        parts = [self.settings or "as it is"]
        if self.python:
            parts.append(self.python)
        return ", ".join([*parts, shlex.join(self.program)])


def both(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[Side]:
    """Returns what sides A and B are asked to be; exits by `parser` where that cannot be."""
    if options.a_model_dir is not None or options.b_model_dir is not None:
        return _finished(parser, options)
    if os.environ.get("TF_CONFIG"):
        parser.error("TF_CONFIG names a cluster, and a side is one process: unset it")
    return [_side(parser, options, label) for label in ("a", "b")]


def _finished(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[Side]:
    given = parser.parse_args([])
    others = [
        name
        for name, value in vars(options).items()
        if value != getattr(given, name)
        and name not in ("a_model_dir", "b_model_dir", "rtol", "atol", "ignore", "plot")
    ]
    if others:
        name = others[0]
        what = "a program" if name in ("script", "module", "arguments") else _flag(name)
        parser.error(f"--a-model-dir and --b-model-dir compare finished runs: leave out {what}")
    for name in ("a_model_dir", "b_model_dir"):
        path = getattr(options, name)
        if path is None:
            parser.error(f"give {_flag(name)} too: two finished runs are compared, or two new ones")
        if "://" not in path and not os.path.isdir(path):
            parser.error(f"{_flag(name)}: there is no folder {path!r}")
    return [
        Side(label.upper(), "", model_dir=getattr(options, f"{label}_model_dir"))
        for label in ("a", "b")
    ]


def _side(parser: argparse.ArgumentParser, options: argparse.Namespace, label: str) -> Side:
    settings, python, program, flags = (
        getattr(options, f"{label}_{name}") for name in ("settings", "python", "program", "flags")
    )
    stock, run_options, environment = _settings(parser, f"--{label}", settings)
    if options.tf_v1:
        if stock:
            parser.error(f"--{label}: {STOCK} runs the program as Python does, without --tf-v1")
        run_options = ["--tf-v1", *run_options]
    if options.map:
        if stock:
            parser.error(f"--{label}: {STOCK} runs the program as Python does, without --map")
        run_options = [
            *(f"--map={prefix}={folder}" for prefix, folder in options.map),
            *run_options,
        ]
    if python is not None and shutil.which(python) is None:
        parser.error(f"--{label}-python: there is no interpreter {python!r}")
    if program is not None:
        if options.module:
            parser.error(f"--{label}-program names a file in place of SCRIPT.py, not of a module")
        if not os.path.isfile(program):
            parser.error(f"--{label}-program: there is no file {program!r}")
    command = (
        ["-m", *options.module]
        if options.module
        else [program or options.script, *options.arguments]
    )
    for file in [] if options.module else command[:1]:
        _check_python(parser, file)
    return Side(
        label.upper(),
        settings,
        stock,
        tuple(run_options),
        environment,
        shutil.which(python) if python else None,
        (*command, *_words(parser, f"--{label}-flags", flags)),
    )


def _settings(
    parser: argparse.ArgumentParser, name: str, text: str
) -> tuple[bool, list[str], dict[str, str]]:
    """Returns whether a side is stock, its options of `estimator-emb run`, its environment."""
    words, environment = [], {}
    for word in _words(parser, name, text):
        setting = _SETTING.fullmatch(word)
        if setting is None:
            words.append(word)
            continue
        variable, value = setting.groups()
        if variable == "TF_CONFIG":
            parser.error(f"{name}: TF_CONFIG names a cluster, and a side is one process")
        if variable.startswith("ESTIMATOR_EMB_") and variable not in VARIABLES:
            known = ", ".join(one.removeprefix("ESTIMATOR_EMB_") for one in VARIABLES)
            parser.error(f"{name}: {variable} means nothing; ESTIMATOR_EMB_ is followed by {known}")
        environment[variable] = value
    if STOCK in words:
        if words != [STOCK]:
            parser.error(
                f"{name}: {STOCK} runs the program as Python does, and takes none of "
                f"{' '.join(word for word in words if word != STOCK)}"
            )
        return True, [], environment
    run = parsers.run()
    run.error = lambda message: parser.error(f"{name}: {message}")  # type: ignore[method-assign]
    if any(word in ("-h", "--help") for word in words):
        parser.error(f"{name} takes the options of estimator-emb run; see estimator-emb run --help")
    options = run.parse_args(words)
    if options.script is not None:
        parser.error(
            f"{name}: {options.script!r} is no option of estimator-emb run, no NAME=value and not "
            f"{STOCK!r}"
        )
    if options.module:
        parser.error(f"{name}: -m names the program, which stands at the end of the command")
    if options.steps_limit is not None:
        parser.error(f"{name}: --steps of estimator-emb compare limits the steps of both sides")
    device = options.device or environment.get("ESTIMATOR_EMB_DEVICE")
    if options.shards is not None and device == "tpu":
        parser.error(f"{name}: --shards is the number of emulated cores: it needs --device=host")
    return False, words, environment


def _words(parser: argparse.ArgumentParser, name: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        return parser.error(f"{name}: {text!r} cannot be read: {error}")


def _check_python(parser: argparse.ArgumentParser, file: str) -> None:
    """Refuses a program that no Python reads; one that is right to another Python may run there."""
    refusal = programs.source_refusal(file)
    if refusal is not None:
        parser.error(refusal)


def _flag(name: str) -> str:
    return {"a_settings": "--a", "b_settings": "--b"}.get(name, f"--{name.replace('_', '-')}")


@dataclasses.dataclass
class Request:
    """How a side is run.

    Attributes:
      steps: of each model directory and each evaluation.
      start: prefixes of the checkpoints from which the model directories start.
      all_start: whether the last is for all that follow.
      every_step: whether there is a checkpoint of each step; None leaves it to the side.
    """

    steps: int
    start: list[str] = dataclasses.field(default_factory=list)
    all_start: bool = False
    every_step: bool | None = None


class Runner:
    """Runs sides, one after the other, and shows how far they are.

    Args:
      folder: a temporary folder, for all that the sides write.
      group: the process group in which they run.
    """

    def __init__(self, folder: str, group: int):
        self._folder = folder
        self._group = group
        self._screen = screen_lib.Screen()

    def run(self, side: Side, request: Request, again: bool = False) -> list[dict[str, Any]]:
        """Runs a side to its end.

        Args:
          side: what it is.
          request: how it is run.
          again: whether it has run before, with the same result if nothing is left to chance.

        Returns:
          The events that it has recorded; see `comparison/processes/side.py`.

        Raises:
          CannotRun: it did not train, or failed.
          Interrupted: a signal came. All processes have ended.
        """
        name = f"{side.label}{' again' if again else ''}"
        folder = os.path.join(self._folder, name.replace(" ", "-"))
        os.makedirs(os.path.join(folder, "tmp"))
        given = {
            "kind": STOCK if side.stock else "ours",
            "options": side.options,
            "program": side.program,
            "most_bytes": MOST_BYTES,
            "seed": _SEED,
            "package": None if side.python or side.stock else os.path.dirname(_PACKAGE),
            **dataclasses.asdict(request),
        }
        with open(os.path.join(folder, "side.json"), "w") as file:
            json.dump(given, file)
        log = os.path.join(folder, "log")
        started = time.monotonic()
        record = _Record(os.path.join(folder, "record.jsonl"))
        with processes.caught_signals() as wakeup:
            with open(log, "wb") as output:
                popen = subprocess.Popen(
                    [side.python or sys.executable, _RUNNER, folder],
                    env=self._environment(side, folder),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    preexec_fn=lambda: os.setpgid(0, self._group),
                )
            try:
                self._watch(name, popen, record, request.steps, started, wakeup)
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
        return {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
            **side.environment,
            # The order of a set of texts, and where tempfile and Estimators without a model_dir
            # write.
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": os.path.join(folder, "tmp"),
        }

    def _watch(
        self,
        name: str,
        popen: subprocess.Popen[bytes],
        record: _Record,
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

    def _check(self, side: Side, name: str, status: int, record: _Record, log: str) -> None:
        """Raises CannotRun where the side has not done what is to be compared."""
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
            how = "ended by os._exit, so that nobody knows how far it was,"
        elif not trained:
            raise CannotRun(
                f"{name}: {program} ended without training a step of an Estimator."
                + _end_of(log, side.label)
            )
        else:
            return
        raise CannotRun(f"{name}: {program} {how} {when}.{_end_of(log, side.label)}")


def _end_of(log: str, label: str) -> str:
    """Returns the last lines of a log, which is kept, and where it is."""
    with open(log, errors="replace") as file:
        last = collections.deque(file, _LAST_LINES)
    handle, kept = tempfile.mkstemp(f"-{label}.log", "estimator-emb-compare-")
    os.close(handle)
    shutil.copyfile(log, kept)
    lines = "".join(f"    {line.rstrip()}\n" for line in last)
    return f" What it wrote is in {kept}" + (
        f"; the last lines:\n{lines.rstrip()}" if lines else "."
    )


class _Record:
    """The events of a side, as far as they are written."""

    def __init__(self, path: str):
        self.events: list[dict[str, Any]] = []
        self._path = path
        self._position = 0

    def read(self) -> None:
        """Reads the events that are new."""
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
        """Returns what the side does."""
        if not self.events:
            return "starts"
        last = self.events[-1]
        if last["event"] == "step":
            return f"step {self.steps:,} of {steps:,}, loss {last['loss']:.6g}"
        return f"{self.steps:,} steps trained" if self.steps else "builds its graph"

    def summary(self) -> str:
        """Returns what the side has done."""
        environment = next(one for one in self.events if one["event"] == "environment")
        parts = [f"TensorFlow {environment['tensorflow']}", _number(self.steps, "step")]
        for event, name in (("evaluation", "evaluation"), ("predictions", "call of predict")):
            if self._count(event):
                parts.append(_number(self._count(event), name))
        return ", ".join(parts)


def _number(count: int, what: str) -> str:
    what = what if count == 1 else what.replace("call", "calls") if " " in what else f"{what}s"
    return f"{count:,} {what}"
