# SPDX-License-Identifier: Apache-2.0
"""`estimator-emb compare`: tells whether a program trains the same under two settings.

Each side is a process of its own. This one imports TensorFlow, to read what they have left, when
they have ended.
"""

from __future__ import annotations

import argparse
import glob
import importlib
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from typing import Any

from estimator_emb.cli import parsers, processes, sides

CANNOT_COMPARE = 2


def main(options: argparse.Namespace) -> int:
    """Compares what `options` name, and prints the report.

    Args:
      options: as `parsers.compare` makes them.

    Returns:
      0 if the sides are the same, 1 if they differ, 2 if they could not be compared, 128 + its
      number for a signal.
    """
    parser = parsers.compare()
    both = sides.both(parser, options)
    _check_plot(parser, options.plot)
    options.start = _check_start(parser, options.start)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _interrupt)
    folder = tempfile.mkdtemp(prefix="estimator-emb-compare-")
    try:
        if both[0].model_dir is not None:
            return _report(options, both, [], [], None)
        with processes.process_group() as group:
            return _run(options, both, folder, group)
    except sides.CannotRun as error:
        return _cannot(str(error))
    except (KeyboardInterrupt, sides.Interrupted) as interrupted:
        number = interrupted.args[0] if interrupted.args else signal.SIGINT
        print(
            f"estimator-emb compare: {signal.Signals(number).name}: the sides were ended, and "
            "nothing is left of them.",
            file=sys.stderr,
        )
        return 128 + int(number)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _interrupt(number: int, frame: Any) -> None:
    raise sides.Interrupted(number)


def _run(options: argparse.Namespace, both: list[sides.Side], folder: str, group: int) -> int:
    runner = sides.Runner(folder, group)
    request = sides.Request(options.steps)
    if options.start is not None:
        request.start, request.all_start = [_linked(options.start, folder)], True
    a = runner.run(both[0], request)
    starts = _starts(a, both[0])
    request = sides.Request(
        options.steps,
        [starts[number]["saved"] for number in sorted(starts)],
        every_step=all(one["every_step"] for one in starts.values()),
    )
    b = runner.run(both[1], request)
    _starts(b, both[1])

    def repeat() -> list[dict[str, Any]]:
        return runner.run(both[0], request, again=True)

    return _report(options, both, a, b, repeat)


def _linked(start: str, folder: str) -> str:
    """Returns another prefix of a checkpoint, as its folder may be the program's model directory.

    A side finds that one empty.
    """
    linked = os.path.join(folder, "start")
    for file in glob.glob(f"{glob.escape(start)}.*"):
        os.symlink(file, linked + file.removeprefix(start))
    return linked


def _starts(events: list[dict[str, Any]], side: sides.Side) -> dict[int, dict[str, Any]]:
    """Returns the event of the start of each model directory that a side has trained.

    Raises:
      sides.CannotRun: there is none of one of them.
    """
    starts = {one["number"]: one for one in events if one["event"] == "start"}
    if starts.keys() != {one["number"] for one in events if one["event"] == "training"}:
        raise sides.CannotRun(
            f"{side.label}: {side.program[0]} restored a checkpoint of its own before its first "
            "step, so that the sides have not the same start."
        )
    return starts


def _report(
    options: argparse.Namespace,
    both: list[sides.Side],
    a: list[dict[str, Any]],
    b: list[dict[str, Any]],
    repeat: Any,
) -> int:
    # By the name that the package has where it is installed, whose __init__ imports TensorFlow.
    _find_package()
    report = importlib.import_module("estimator_emb.comparison.report")
    recorded = importlib.import_module("estimator_emb.comparison.recorded")
    try:
        return int(report.report(options, both, a, b, repeat))
    except recorded.CannotCompare as error:
        return _cannot(str(error))


def _find_package() -> None:
    """Lets `import estimator_emb` find the package of this file, however it was started."""
    if importlib.util.find_spec("estimator_emb") is None:
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        sys.path.append(os.path.dirname(package))


def _check_plot(parser: argparse.ArgumentParser, plot: str | None) -> None:
    if plot is None:
        return
    if not plot.endswith(".png"):
        parser.error(f"--plot: {plot!r} must end in .png")
    if not os.path.isdir(os.path.dirname(plot) or "."):
        parser.error(f"--plot: there is no folder {os.path.dirname(plot)!r}")
    if importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install 'estimator-emb[plot]'")


def _check_start(parser: argparse.ArgumentParser, start: str | None) -> str | None:
    """Returns the prefix of the checkpoint that --start names."""
    if start is None:
        return None
    prefix = _prefix(start)
    if prefix is None:
        parser.error(f"--start: there is no checkpoint {start!r}")
    return prefix


def _prefix(path: str) -> str | None:
    """Returns the prefix of a checkpoint that is named by it or by its folder; None for none."""
    state = os.path.join(path, "checkpoint")
    if os.path.isfile(state):
        with open(state) as file:
            for line in file:
                name, _, value = line.partition(":")
                if name == "model_checkpoint_path":
                    path = os.path.join(path, value.strip().strip('"'))
                    break
    return os.path.abspath(path) if os.path.isfile(f"{path}.index") else None


def _cannot(why: str) -> int:
    print(f"estimator-emb compare: {why}", file=sys.stderr)
    return CANNOT_COMPARE
