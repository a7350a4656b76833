# SPDX-License-Identifier: Apache-2.0
"""Puts tables of a legacy 'mod' checkpoint in the order of their ids: `estimator-emb convert`."""

import fnmatch
import sys

import tqdm

from estimator_emb import checkpoint
from estimator_emb.command import parsers


def main(args: list[str]) -> int:
    """Converts a checkpoint and prints what was done; returns 0, or 2 if an argument is wrong."""
    options = parsers.parse("convert", args)
    try:
        tables = _matching(options.source, options.table)
        with tqdm.tqdm(unit="B", unit_scale=True, disable=None) as bar:

            def progress(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            conversion = checkpoint.convert(
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
    for name in conversion.permuted:
        print(f"moved rows of {name}")
    for name in conversion.dropped:
        print(f"left out {name}")
    print(conversion.path)
    return 0


def _matching(source: str, patterns: list[str]) -> list[str]:
    """Returns the names of the matrices that match, without slots."""
    names = [variable.name for variable in checkpoint.inspect(source) if len(variable.shape) == 2]
    matching = []
    for pattern in patterns:
        # A name that is no pattern may be that of a slot which `inspect` does not know as such.
        matches = fnmatch.filter(names, pattern) or [pattern]
        if matches == [pattern] and any(sign in pattern for sign in "*?["):
            raise ValueError(f"no matrix matches {pattern!r}; there are {names}.")
        matching += matches
    return matching
