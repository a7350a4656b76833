# SPDX-License-Identifier: Apache-2.0
"""Runs the command `estimator-emb`; its subcommands are modules of `estimator_emb.tools`."""

from __future__ import annotations

import importlib
import sys

from . import parsers


def main(args: list[str] | None = None) -> int:
    """Runs a subcommand.

    Args:
      args: the subcommand's name and its own arguments; None means those of this process.

    Returns:
      The exit status; 2 if `args` name no subcommand.
    """
    args = sys.argv[1:] if args is None else args
    if not args or args[0] in ("-h", "--help", "help"):
        print(_help(), file=sys.stdout if args else sys.stderr)
        return 0 if args else 2
    if args[0] == "--version":
        print(importlib.import_module("estimator_emb").__version__)
        return 0
    if args[0] not in parsers.PARSERS:
        print(
            f"estimator-emb: there is no subcommand {args[0]!r}; there are "
            f"{', '.join(parsers.PARSERS)}. See estimator-emb --help.",
            file=sys.stderr,
        )
        return 2
    parsers.parse(
        args[0], args[1:]
    )  # Exits for --help or wrong arguments, before TensorFlow loads.
    return importlib.import_module(f"estimator_emb.tools.{args[0]}").main(args[1:])


def _help() -> str:
    lines = ["usage: estimator-emb SUBCOMMAND ARGUMENTS...", ""]
    for name, make_parser in parsers.PARSERS.items():
        summary = (make_parser().description or "").partition("\n")[0]
        lines.append(f"  {name:<9}{summary}")
    return "\n".join([*lines, "", "estimator-emb SUBCOMMAND --help says more."])
