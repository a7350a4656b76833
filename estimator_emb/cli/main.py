"""Entry point of `estimator-emb`: finds the subcommand, parses its arguments and runs it."""

import os
import signal
import sys
from typing import Any

from estimator_emb.catalog import extras
from estimator_emb.cli import parsing

SUBCOMMANDS = {
    "run": "Runs a training program for TPUs unchanged, by default without a TPU.",
    "cluster": "Runs a training program as a cluster of processes on this machine.",
    "check": "Checks, without a TPU, whether a TPU will accept a program.",
    "compare": "Tells whether two finished runs trained the same.",
    "inspect": "Lists the variables of a checkpoint: shapes, sizes, optimizers and slots.",
    "convert": "Reorders the tables of a legacy 'mod' checkpoint by id.",
    "migrate": "Rewrites programs to import estimator_emb instead of legacy modules.",
    "export": "Exports tables of a checkpoint.",
}
"""Subcommand -> its line in the help text.

The subcommand's module has `fill_parser`, which adds the arguments to a parser. `main` does the
work with the parsed arguments, and returns the exit status. `DETAILS` is part of the help text.
"""

_EXTRA_OF = {
    "cluster": "launcher",
    "check": "check",
    "compare": "compare",
    "convert": "formats",
    "migrate": "migrate",
    "export": "formats",
}
"""Subcommand -> the extra that contains it. The other subcommands belong to the core."""


def main(args: list[str] | None = None) -> int:
    """Runs a subcommand and returns its exit status.

    Returns 2 if the subcommand or a required package is missing. If the reader of stdout closes it
    early, as `head` does, the status is 128 + SIGPIPE.
    """
    try:
        try:
            return _run(sys.argv[1:] if args is None else args)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _run(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        print(_help(), file=sys.stdout if args else sys.stderr)
        return 0 if args else 2
    name = args[0]
    if name == "--version":
        from estimator_emb.cli import versions

        print(versions.text())
        return 0
    if name not in SUBCOMMANDS:
        print(
            f"estimator-emb: there is no subcommand {name!r}; there are {', '.join(SUBCOMMANDS)}. "
            "See estimator-emb --help.",
            file=sys.stderr,
        )
        return 2
    try:
        parser = parser_of(name)
        options = parser.parse(args[1:])
        try:
            return int(_module(name).main(options))
        except parsing.WrongArguments as error:
            parser.error(str(error))
    except ImportError as error:
        if ": pip " not in str(error) and not isinstance(error, extras.MissingExtra):
            raise
        print(f"estimator-emb: {error}", file=sys.stderr)
        return 2


def parser_of(name: str) -> parsing.Parser:
    """Returns the parser of a subcommand."""
    module = _module(name)
    parser = parsing.Parser(name, f"{SUBCOMMANDS[name]}\n\n{module.DETAILS}".rstrip())
    module.fill_parser(parser)
    return parser


def _module(name: str) -> Any:
    return extras.load(_EXTRA_OF.get(name, "core"), f"cli.{name}")


def _help() -> str:
    lines = "\n".join(f"  {name:<9}{summary}" for name, summary in SUBCOMMANDS.items())
    return (
        f"usage: estimator-emb SUBCOMMAND ARGUMENTS...\n\n{lines}\n\n"
        "For details: estimator-emb SUBCOMMAND --help"
    )
