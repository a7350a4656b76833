# SPDX-License-Identifier: Apache-2.0
"""Runs the command `estimator-emb`.

A subcommand is a module of this package.
"""

from __future__ import annotations

import importlib
import os
import sys

import estimator_emb
from estimator_emb.cli import parsers, versions


def main(args: list[str] | None = None) -> int:
    """Runs a subcommand.

    Args:
      args: the subcommand's name and its own arguments; None means those of this process.

    Returns:
      The exit status; 2 if `args` name no subcommand.
    """
    args = sys.argv[1:] if args is None else args
    status = _answer(args)
    if status is not None:
        return status
    _quiet_tensorflow()
    try:
        load_package()
        tool = importlib.import_module(f"estimator_emb.cli.{args[0]}")
    except ImportError as error:
        if ": pip " not in str(error):
            raise
        print(f"estimator-emb: {error}", file=sys.stderr)  # A package is missing or does not fit.
        return 2
    from estimator_emb.messages import console

    with console.shown():
        return tool.main(args[1:])


def load_package() -> None:
    """Runs estimator_emb/__init__.py, and with it TensorFlow's, where the script has not yet."""
    if not hasattr(estimator_emb, "__all__"):
        estimator_emb.__spec__.loader.exec_module(estimator_emb)  # type: ignore[union-attr]


def _answer(args: list[str]) -> int | None:
    """Returns the exit status of a call that needs no TensorFlow; None for a subcommand to run."""
    if not args or args[0] in ("-h", "--help", "help"):
        print(_help(), file=sys.stdout if args else sys.stderr)
        return 0 if args else 2
    if args[0] == "--version":
        print(versions.text())
        return 0
    if args[0] not in parsers.PARSERS:
        print(
            f"estimator-emb: there is no subcommand {args[0]!r}; there are "
            f"{', '.join(parsers.PARSERS)}. See estimator-emb --help.",
            file=sys.stderr,
        )
        return 2
    options = parsers.parse(args[0], args[1:])  # Exits for --help or wrong arguments.
    if args[0] in ("cluster", "compare", "migrate"):  # Other processes need TensorFlow, or none.
        _quiet_tensorflow()
        status: int = importlib.import_module(f"{__package__}.{args[0]}").main(options)
        return status
    return None


def _quiet_tensorflow() -> None:
    """Leaves out what TensorFlow's C++ notes of this machine, unless the user has chosen."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def _help() -> str:
    lines = ["usage: estimator-emb SUBCOMMAND ARGUMENTS...", ""]
    for name, make_parser in parsers.PARSERS.items():
        summary = (make_parser().description or "").partition("\n")[0]
        lines.append(f"  {name:<9}{summary}")
    return "\n".join([*lines, "", "estimator-emb SUBCOMMAND --help says more."])
