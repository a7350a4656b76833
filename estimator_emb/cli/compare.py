"""Tells whether a program trains the same under two settings: `estimator-emb compare`.

Each side runs in its own process. After both have ended, this process imports TensorFlow to read
their results.
"""

import argparse
import contextlib
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NoReturn

from estimator_emb.catalog import environment
from estimator_emb.checkpoints.files import paths
from estimator_emb.cli import (
    load_package,
    parsing,
    processes,
    program_files,
    run,
    run_options,
)
from estimator_emb.cli.comparison import CannotCompare, side_processes
from estimator_emb.cli.comparison.side_processes import OUT, Side
from estimator_emb.cli.parsing import WrongArguments

DETAILS = """\
Side A and side B run the same steps of the program from the same variables and seeds. Losses,
variables with their slots, metrics and predictions are compared.

Write {out} for the output folder in the program's arguments, as in --model_dir={out}. Each side
gets a separate temporary folder. Paths in the program's own text do not change, so both sides
write there. SETTINGS are options of `estimator-emb run` and environment variables, such as
"--shards=8" or "ESTIMATOR_EMB_NATIVE=0". The word "stock" means tensorflow-estimator without this
package.

The exit status is 0 if the sides are the same within the tolerance, 1 if they differ, and 2 if they
could not be compared.
"""
_SETTING = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.S)
_OF_FINISHED_RUNS = ("a_model_dir", "b_model_dir", "rtol", "atol", "ignore", "plot")
_STOCK = "stock"


def fill_parser(parser: parsing.Parser) -> None:
    """Adds the arguments."""
    for side in ("a", "b"):
        one = f"side {side.upper()}"
        parser.add_argument(
            f"--{side}",
            default="",
            metavar="SETTINGS",
            help=f"settings of {one}. Default: none",
        )
        for name, metavar, text in (
            (
                "python",
                "PYTHON",
                f"Python interpreter of {one}, with its TensorFlow",
            ),
            ("program", "FILE.py", f"program of {one}, instead of SCRIPT.py"),
            ("flags", "FLAGS", f"further flags of the program, only on {one}"),
            (
                "model-dir",
                "FOLDER",
                f"model directory of a finished run, instead of running {one}",
            ),
        ):
            parser.add_argument(f"--{side}-{name}", metavar=metavar, help=text)
    tolerance = parsing.number(float, "a number >= 0", lambda value: 0 <= value < float("inf"))
    parser.add_count(
        "--steps",
        help="steps of each model directory, and of each evaluation. Default: 20",
        default=20,
    )
    parser.add_argument(
        "--start",
        metavar="CHECKPOINT",
        help="both sides start from this checkpoint, given by its prefix or folder. Default: from "
        "the initial values of side A",
    )
    parser.add_argument(
        "--rtol", type=tolerance, default=1e-4, help="relative tolerance. Default: 1e-4"
    )
    parser.add_argument(
        "--atol", type=tolerance, default=1e-5, help="absolute tolerance. Default: 1e-5"
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="PATTERN",
        help="leave out variables, metrics and predictions with matching names. * and ? are "
        "wildcards. May be given several times",
    )
    parser.add_argument(
        "--repeat",
        choices=("auto", "yes", "no"),
        default="auto",
        help="run side A twice, to tell chance from a difference of the sides. auto, the default: "
        "only if the sides differ",
    )
    parser.add_plot("draw losses and differences. Needs matplotlib")
    run_options.add_to(parser, run_options.OF_ANY_PROGRAM)
    parser.add_program()
    parser.usage = (
        "estimator-emb compare [options] --a SETTINGS --b SETTINGS SCRIPT.py --model_dir={out}\n"
        "       estimator-emb compare [options] --a SETTINGS --b SETTINGS -m MODULE "
        "--model_dir={out}\n"
        "       estimator-emb compare [options] --a-model-dir=FOLDER --b-model-dir=FOLDER"
    )


def main(options: argparse.Namespace) -> int:
    """Compares two sides. Returns the status in DETAILS, or 128 + the signal that ended it."""
    both = sides(options)
    if options.start is not None:
        with _about("--start"):
            start = paths.local_prefix(options.start)
            if start is None:
                raise WrongArguments(f"there is no checkpoint {options.start!r}")
        options.start = os.path.abspath(start)
    try:
        with (
            processes.handled_signals(_interrupt),
            tempfile.TemporaryDirectory(
                prefix="estimator-emb-compare-", ignore_cleanup_errors=True
            ) as folder,
        ):
            if both[0].model_dir is not None:
                return _report(options, both, [], [], None)
            with processes.process_group() as group:
                return _run(options, both, folder, group)
    except CannotCompare as error:
        return _cannot(str(error))
    except _Interrupted as interrupted:
        (number,) = interrupted.args
        _cannot(f"{number.name}: the sides were ended, and nothing is left of them.")
        return 128 + int(number)


class _Interrupted(BaseException):
    """Raised when a signal arrives that ends the command."""


def _interrupt(number: int, frame: Any) -> None:
    raise _Interrupted(signal.Signals(number))


def _run(options: argparse.Namespace, both: list[Side], folder: str, group: int) -> int:
    runner = side_processes.SideRunner(folder, group)
    start: dict[str, Any] = {}
    if options.start is not None:
        with _reading():
            from estimator_emb.checkpoints.files import checkpoint_reader

            checkpoint_reader.load(options.start)
        start = {"start": [options.start], "all_start": True}
    a = runner.run_side(both[0], options.steps, **start)
    starts = _starts(a, both[0])
    start = {
        "start": [starts[number]["saved"] for number in sorted(starts)],
        "every_step": all(one["every_step"] for one in starts.values()),
    }
    b = runner.run_side(both[1], options.steps, **start)
    _starts(b, both[1])

    def repeat() -> list[Any]:
        return runner.run_side(both[0], options.steps, again=True, **start)

    return _report(options, both, a, b, repeat)


def _starts(events: list[dict[str, Any]], side: Side) -> dict[int, dict[str, Any]]:
    starts = {one["number"]: one for one in events if one["event"] == "start"}
    if starts.keys() != {one["number"] for one in events if one["event"] == "training"}:
        raise CannotCompare(
            f"{side.label}: {side.program[0]} restored a checkpoint of its own before its first "
            "step, so the sides do not start from the same values. Give it its model_dir by "
            f"{OUT} in its arguments."
        )
    return starts


def _report(*args: Any) -> int:
    with _reading():
        from estimator_emb.cli.comparison import comparison_report
        from estimator_emb.reporting import console

        with console.shown():  # Hides deprecation warnings.
            return comparison_report.report(*args)


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Loads the package, and turns an error about a damaged checkpoint into CannotCompare."""
    load_package()
    from estimator_emb.checkpoints.files.checkpoint_files import CheckpointError

    try:
        yield
    except CheckpointError as error:
        raise CannotCompare(error.message) from error


def _cannot(why: str) -> int:
    print(f"estimator-emb compare: {why}", file=sys.stderr)
    return 2


def sides(options: argparse.Namespace) -> list[Side]:
    """Returns sides A and B, or raises WrongArguments if the options cannot describe them."""
    if options.a_model_dir is not None or options.b_model_dir is not None:
        return _finished(options)
    program_files.check_program(options, by_this_python=False)
    if os.environ.get("TF_CONFIG"):
        raise WrongArguments("TF_CONFIG names a cluster, and a side is one process: unset it")
    both = [_side(options, label) for label in ("a", "b")]
    for side in both:
        if not side.has_out():
            raise WrongArguments(
                f"side {side.label}: no argument of the program has {OUT}. Write {OUT} for its "
                f"output folder, as in --model_dir={OUT}: each side gets a folder of its own. If "
                "the path is in the program's own text, both sides write there: make it a flag."
            )
    return both


def _finished(options: argparse.Namespace) -> list[Side]:
    parser = parsing.Parser("compare", "")
    fill_parser(parser)
    for name, value in vars(options).items():
        if name not in _OF_FINISHED_RUNS and (value or None) != (parser.get_default(name) or None):
            what = "a program" if name == "program" else f"--{name.replace('_', '-')}"
            raise WrongArguments(
                f"--a-model-dir and --b-model-dir compare finished runs: leave out {what}"
            )
    for label, path in (("a", options.a_model_dir), ("b", options.b_model_dir)):
        flag = f"--{label}-model-dir"
        if path is None:
            raise WrongArguments(
                f"give {flag} too: a finished run is only compared with another finished run"
            )
        with _about(flag):
            if "://" not in path and not os.path.isdir(path):
                raise WrongArguments(f"there is no folder {path!r}")
            paths.local_prefix(path)
    return [
        Side("A", "", model_dir=options.a_model_dir),
        Side("B", "", model_dir=options.b_model_dir),
    ]


def _side(options: argparse.Namespace, label: str) -> Side:
    settings = getattr(options, label)
    python, program, flags = (
        getattr(options, f"{label}_{name}") for name in ("python", "program", "flags")
    )
    with _about(f"--{label}"):
        fields = _settings(settings, options)
    with _about(f"--{label}-flags"):
        more = _split(flags or "")
    if python is not None and shutil.which(python) is None:
        raise WrongArguments(f"--{label}-python: there is no interpreter {python!r}")
    command = list(options.program)
    if program is not None:
        if command[0] == "-m":
            raise WrongArguments(f"--{label}-program replaces SCRIPT.py: it does not go with -m")
        if not os.path.isfile(program):
            raise WrongArguments(f"--{label}-program: there is no file {program!r}")
        command[0] = program
    refusal = None if command[0] == "-m" else program_files.source_refusal(command[0])
    if refusal is not None:
        raise WrongArguments(refusal)
    return Side(
        label.upper(),
        settings,
        python=shutil.which(python) if python else None,
        program=(*command, *more),
        **fields,
    )


def _settings(text: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the fields of `Side` that a SETTINGS text describes."""
    words, variables = run_options.words(options, run_options.OF_ANY_PROGRAM), {}
    for word in _split(text):
        if setting := _SETTING.fullmatch(word):
            variables[setting[1]] = setting[2]
        else:
            words.append(word)
    known = [one.name for one in environment.VARIABLES]
    for variable in variables:
        if variable == "TF_CONFIG":
            raise WrongArguments("TF_CONFIG names a cluster, and a side is one process")
        if variable.startswith("ESTIMATOR_EMB_") and variable not in known:
            ends = ", ".join(one.removeprefix("ESTIMATOR_EMB_") for one in known)
            raise WrongArguments(f"{variable} means nothing; ESTIMATOR_EMB_ is followed by {ends}")
    if _STOCK in words:
        words.remove(_STOCK)
        if words:
            raise WrongArguments(
                f"{_STOCK} runs the program as Python does: give {' '.join(words)} to the other "
                "side only"
            )
        return {"stock": True, "environment": variables}
    parsed = _options_of_run(words)
    own = run_options.variables(parsed, {**os.environ, **variables})
    return {"launch": run_options.launch_arguments(parsed), "environment": {**variables, **own}}


class _SettingsParser(parsing.Parser):
    """Parses the options of `run` inside SETTINGS."""

    def error(self, message: str) -> NoReturn:
        raise WrongArguments(message)


def _options_of_run(words: list[str]) -> argparse.Namespace:
    parser = _SettingsParser("run", "")
    if any(word in ("-h", "--help") for word in words):
        parser.error("it takes the options of estimator-emb run; see estimator-emb run --help")
    run.fill_parser(parser)
    options = parser.parse(words)
    if options.program[:1] == ["-m"]:
        parser.error("-m belongs at the end of the command, where the program is named")
    if options.program:
        parser.error(
            f"{options.program[0]!r} is no option of estimator-emb run, no NAME=value and not "
            f"{_STOCK!r}"
        )
    if options.steps_limit is not None:
        parser.error("leave out --steps-limit: --steps of estimator-emb compare limits both sides")
    return options


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise WrongArguments(f"{text!r} cannot be read: {error}") from None


@contextlib.contextmanager
def _about(flag: str) -> Iterator[None]:
    """Prefixes errors raised inside with the name of a flag."""
    try:
        yield
    except (WrongArguments, ValueError) as error:
        raise WrongArguments(f"{flag}: {error}") from None
