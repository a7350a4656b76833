# SPDX-License-Identifier: Apache-2.0
"""Puts tables of a legacy 'mod' checkpoint in the order of their ids: `estimator-emb convert`."""

import fnmatch
import sys

import tqdm

from estimator_emb import checkpoint
from estimator_emb.command import parsers


def main(args: list[str]) -> int:
    """Converts, and prints what moved; returns 2 if an argument is wrong."""
    options = parsers.parse("convert", args)
    try:
        tables = _matching(options.source, options.table)
        with tqdm.tqdm(unit="B", unit_scale=True, disable=None) as bar:

            def progress(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            made = checkpoint.convert(
                options.source,
                options.destination,
                tables,
                options.hosts,
                to="mod" if options.reverse else "ids",
                progress=progress,
            )
    except ValueError as error:
        print(f"estimator-emb convert: {error}", file=sys.stderr)
        return 2
    for name in made.permuted:
        print(f"moved rows of {name}")
    for name in made.dropped:
        print(f"left out {name}")
    print(made.path)
    return 0


def _matching(source: str, patterns: list[str]) -> list[str]:
    """The matrices whose names match, without slots."""
    names = [one.name for one in checkpoint.inspect(source) if len(one.shape) == 2]
    matching = []
    for pattern in patterns:
        # A name that is no pattern may also be of a kind of slot that is not known.
        found = fnmatch.filter(names, pattern) or [pattern]
        if found == [pattern] and any(sign in pattern for sign in "*?["):
            raise ValueError(f"no matrix matches {pattern!r}; there are {names}.")
        matching += found
    return matching
