"""Parses the arguments of every subcommand, and reports each error in a single line."""

import argparse
import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from estimator_emb.cli import load_package
from estimator_emb.reporting.text_columns import escaped

_FUNCTION = re.compile(r"^(convert|differences|export|table): ")
"""Matches the function's name in an error of the package. The command shows its own name."""


class WrongArguments(Exception):
    """Raised for arguments that conflict or cannot be used here. The text is a single line."""


class Parser(argparse.ArgumentParser):
    """Accepts options between positional arguments, and leaves a program's own arguments alone."""

    def __init__(self, name: str, description: str):
        super().__init__(
            prog=f"estimator-emb {name}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._takes_program = False

    def add_program(self) -> None:
        """Adds the arguments that name a program. `parse` collects them in the list `program`."""
        self._takes_program = True
        self.allow_abbrev = False
        self.usage = (
            f"{self.prog} [options] SCRIPT.py [its arguments]\n"
            f"       {self.prog} [options] -m MODULE [its arguments]"
        )
        self.add_argument(
            "-m", dest="module", metavar="MODULE", nargs=argparse.REMAINDER, help="run a module"
        )
        self.add_argument("script", metavar="SCRIPT.py", nargs="?", help="the program")
        self.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own arguments")

    def error(self, message: str) -> NoReturn:
        if self._takes_program and message.startswith("unrecognized arguments"):
            message += ". Those of the program come after its name"
        super().error(escaped(message))

    def add_count(self, *flags: str, metavar: str = "N", **kwargs: Any) -> None:
        self.add_argument(*flags, type=at_least_one, metavar=metavar, **kwargs)

    def add_order(self) -> None:
        self.add_argument(
            "--from",
            dest="order",
            choices=("mod", "div"),
            help="partition_strategy of the program that wrote a legacy TPU checkpoint. Needed if "
            "neither a record nor a graph (a .meta file) tells it",
        )

    def add_plot(self, text: str) -> None:
        self.add_argument("--plot", type=_plot, metavar="FILE.png", help=text)

    def parse(self, args: Sequence[str]) -> argparse.Namespace:
        for flag, action in list(self._option_string_actions.items()):
            self._option_string_actions[re.sub(r"(?<=\w)-", "_", flag)] = action
        if self._takes_program:
            return self._parse_before_program(list(args))
        # After '--', only parse_args accepts names that begin with '-'.
        return (self.parse_args if "--" in args else self.parse_intermixed_args)(args)

    def _parse_before_program(self, args: list[str]) -> argparse.Namespace:
        # argparse reads `-mMODULE` and `--` differently from Python.
        starts = (i for i, arg in enumerate(args) if arg == "--" or arg.startswith("-m"))
        end = next(starts, len(args))
        options = self.parse_args(args[:end])
        rest = args[end:]
        if options.script is not None:
            options.program = [options.script, *options.arguments, *rest]
        elif rest[:1] == ["--"]:
            options.program = rest[1:]
        elif rest and rest[0] != "-m":
            options.program = ["-m", rest[0].removeprefix("-m"), *rest[1:]]
        else:
            options.program = rest
        del options.script, options.module, options.arguments
        return options


def number(
    kind: type[int] | type[float], what: str, allows: Callable[[Any], bool]
) -> Callable[[str], Any]:
    """Returns an argparse type for numbers that `allows` accepts and `what` describes."""

    def parsed(text: str) -> Any:
        with contextlib.suppress(ValueError):
            value = kind(text)
            if allows(value):
                return value
        raise argparse.ArgumentTypeError(f"must be {what}; got {text!r}")

    return parsed


at_least_one = number(int, "an integer >= 1", lambda value: value >= 1)


def _plot(text: str) -> str:
    if not text.endswith(".png"):
        raise argparse.ArgumentTypeError(f"{text!r} must end in .png")
    if not os.path.isdir(os.path.dirname(text) or "."):
        raise argparse.ArgumentTypeError(f"there is no folder {os.path.dirname(text)!r}")
    if importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError("it needs matplotlib: pip install matplotlib")
    return text


def prints_errors(
    work: Callable[[argparse.Namespace], None],
) -> Callable[[argparse.Namespace], int]:
    """Returns the `main` of a subcommand. It prints an error in a line, and then returns 2."""

    def main(options: argparse.Namespace) -> int:
        """Runs `work`. Returns 0, or 2 after an error."""
        load_package()
        import tensorflow as tf

        try:
            work(options)
        except BrokenPipeError:
            raise
        except (ValueError, OSError, tf.errors.OpError) as error:
            text = _FUNCTION.sub("", str(getattr(error, "message", error)))
            name = work.__module__.rpartition(".")[2]
            print(f"estimator-emb {name}: {escaped(text)}", file=sys.stderr)
            return 2
        return 0

    return main
