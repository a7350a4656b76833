# SPDX-License-Identifier: Apache-2.0
"""Runs the subcommands that read checkpoints, with errors in one line."""

import argparse
import re
import sys
from collections.abc import Callable

from estimator_emb.cli import arguments, load_package
from estimator_emb.messages.text_columns import escaped

_FUNCTION = re.compile(r"^(convert|differences|export|nearest|table): ")
"""The function that an error of the package names; the command names itself."""


def prints_errors(
    check: Callable[[argparse.Namespace], None], work: Callable[[argparse.Namespace], None]
) -> Callable[[argparse.Namespace], int]:
    """Returns the `main` of a subcommand, which prints an error and then returns 2.

    What `check` raises is said before TensorFlow is imported.
    """

    def main(options: argparse.Namespace) -> int:
        """Does the work, and returns 0, or 2 after an error."""
        errors: tuple[type[Exception], ...] = (ValueError, OSError)
        try:
            check(options)
            errors = ()  # Those of an import have a traceback.
            load_package()
            import tensorflow as tf

            errors = (ValueError, OSError, tf.errors.OpError)
            work(options)
        except BrokenPipeError:
            raise
        except errors as error:
            text = _FUNCTION.sub("", str(getattr(error, "message", error)))
            name = work.__module__.rpartition(".")[2]
            print(f"estimator-emb {name}: {escaped(text)}", file=sys.stderr)
            return 2
        return 0

    return main


def add_order(parser: arguments.Parser) -> None:
    """Adds --from, the order of the rows."""
    parser.add_argument(
        "--from",
        dest="order",
        choices=("mod", "div"),
        help="partition_strategy of the program that wrote a legacy TPU checkpoint, where neither "
        "a record nor a graph (its .meta file) says it",
    )
