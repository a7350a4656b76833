# SPDX-License-Identifier: Apache-2.0
"""What the subcommands that read checkpoints have in common."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator

import tensorflow as tf
import tqdm

from estimator_emb.messages.text_columns import escaped

_FUNCTION = re.compile(r"^(convert|differences|export|nearest|table): ")
"""The function that an error of the package names; the command names itself."""


def status_of(name: str, work: Callable[[], None]) -> int:
    """Does the work of a subcommand; returns 0, or 2 where it is an error of one line."""
    try:
        work()
    except (ValueError, tf.errors.OpError, OSError) as error:
        text = _FUNCTION.sub("", str(getattr(error, "message", error)))
        print(f"estimator-emb {name}: {escaped(text)}", file=sys.stderr)
        return 2
    return 0


@contextlib.contextmanager
def progress_bar(stays: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar where stderr is a terminal; yields what moves it to bytes done, of all.

    Args:
      stays: whether the bar is left on the terminal at the end.
    """
    with tqdm.tqdm(unit="B", unit_scale=True, disable=None, leave=stays) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield progress
