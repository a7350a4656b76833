# SPDX-License-Identifier: Apache-2.0
"""Runs the subcommands that read checkpoints, with errors in one line."""

import argparse
import functools
import re
import sys
from collections.abc import Callable

from estimator_emb.cli import arguments, load_package
from estimator_emb.messages.text_columns import escaped

_FUNCTION = re.compile(r"^(convert|differences|export|nearest|table): ")
"""The function that an error of the package names; the command names itself."""


def prints_errors(
    check: Callable[[argparse.Namespace], None],
) -> Callable[[Callable[[argparse.Namespace], None]], Callable[[argparse.Namespace], int]]:
    """Makes the work of a subcommand its `main`, which prints an error and then returns 2.

    What `check` finds, it says before it loads TensorFlow.
    """

    def decorate(work: Callable[[argparse.Namespace], None]) -> Callable[[argparse.Namespace], int]:
        @functools.wraps(work)
        def main(options: argparse.Namespace) -> int:
            errors: tuple[type[Exception], ...] = (ValueError, OSError)
            try:
                check(options)
            except errors as error:
                return _said(work, error)
            load_package()
            import tensorflow as tf

            try:
                work(options)
            except BrokenPipeError:
                raise
            except (*errors, tf.errors.OpError) as error:
                return _said(work, error)
            return 0

        return main

    return decorate


def _said(work: Callable[[argparse.Namespace], None], error: Exception) -> int:
    text = _FUNCTION.sub("", str(getattr(error, "message", error)))
    name = work.__module__.rpartition(".")[2]
    print(f"estimator-emb {name}: {escaped(text)}", file=sys.stderr)
    return 2


def add_order(parser: arguments.Parser) -> None:
    """Adds --from, the order of the rows."""
    parser.add_argument(
        "--from",
        dest="order",
        choices=("mod", "div"),
        help="partition_strategy of the program that wrote a legacy TPU checkpoint, where neither "
        "a record nor a graph (its .meta file) says it",
    )
