# SPDX-License-Identifier: Apache-2.0
"""The command `estimator-emb`: each subcommand is a module of this package with its own `main`."""

from __future__ import annotations

import importlib
import importlib.util
import sys

SUBCOMMANDS = ("run", "check", "inspect", "convert")
"""Modules of this package. The first line of a docstring is the subcommand's line in the help."""


def main(args: list[str] | None = None) -> int:
    """Runs a subcommand.

    Args:
      args: the subcommand's name and its own arguments; None means those of this process.

    Returns:
      The exit status; 2 for a call that names no subcommand.
    """
    args = sys.argv[1:] if args is None else args
    if not args or args[0] in ("-h", "--help", "help"):
        print(_help(), file=sys.stdout if args else sys.stderr)
        return 0 if args else 2
    if args[0] == "--version":
        print(importlib.import_module("estimator_emb").__version__)
        return 0
    if args[0] not in _available():
        print(
            f"estimator-emb: there is no subcommand {args[0]!r}; there are "
            f"{', '.join(_available())}. See estimator-emb --help.",
            file=sys.stderr,
        )
        return 2
    return _module(args[0]).main(args[1:])


def _available() -> list[str]:
    return [name for name in SUBCOMMANDS if importlib.util.find_spec(_full(name)) is not None]


def _full(name: str) -> str:
    return f"{__package__}.{name}"


def _module(name: str):
    return importlib.import_module(_full(name))


def _help() -> str:
    lines = ["usage: estimator-emb SUBCOMMAND ARGUMENTS...", ""]
    for name in _available():
        summary = (_module(name).__doc__ or "").strip().splitlines()[0]
        lines.append(f"  {name:<9}{summary}")
    return "\n".join([*lines, "", "estimator-emb SUBCOMMAND --help says more."])
