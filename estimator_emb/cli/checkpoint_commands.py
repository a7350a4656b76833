# SPDX-License-Identifier: Apache-2.0
"""Runs the subcommands that read checkpoints, with errors in one line and a progress bar."""

import argparse
import contextlib
import re
import sys
from collections.abc import Callable, Iterator

from estimator_emb.cli import load_package
from estimator_emb.messages.text_columns import escaped

_FUNCTION = re.compile(r"^(convert|differences|export|nearest|table): ")
"""The function that an error of the package names; the command names itself."""


def status_of(
    name: str, work: Callable[[argparse.Namespace], None], options: argparse.Namespace
) -> int:
    """Does the work of a subcommand; returns 0, or 2 after an error, which is printed."""
    load_package()
    import tensorflow as tf

    try:
        work(options)
    except (ValueError, tf.errors.OpError, OSError) as error:
        text = _FUNCTION.sub("", str(getattr(error, "message", error)))
        print(f"estimator-emb {name}: {escaped(text)}", file=sys.stderr)
        return 2
    return 0


@contextlib.contextmanager
def progress_bar(stays: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Yields a function of bytes done and bytes in all that moves a progress bar."""
    import tqdm

    with tqdm.tqdm(unit="B", unit_scale=True, disable=None, leave=stays) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield progress
