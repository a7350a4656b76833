# SPDX-License-Identifier: Apache-2.0
"""Put the tables of a legacy 'mod' checkpoint in the order of their ids, in a new checkpoint.

    estimator-emb convert OLD NEW --hosts=8 --table='*/embedding_weights' --table=words

The legacy TPUEstimator with partition_strategy='mod' saved the rows of its tables host by host. The
new checkpoint has them in the order of their ids, as every checkpoint of this package has, and
restores under either strategy and any number of hosts. Slots move with their tables; the legacy
helper variables are left out; all else is copied.
"""

import argparse
import fnmatch
import sys

import tqdm

from estimator_emb import checkpoint


def main(args: list[str]) -> int:
    """Converts, and prints what moved; returns 2 if an argument is wrong."""
    options = _parser().parse_args(args)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="estimator-emb convert",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", help="prefix of a checkpoint, or its folder")
    parser.add_argument("destination", help="prefix of the new checkpoint, or a folder")
    parser.add_argument(
        "--hosts", type=int, required=True, help="number of TPU hosts that held the tables"
    )
    parser.add_argument(
        "--table",
        action="append",
        required=True,
        help="name of a table, or a pattern with * and ?; may be given several times",
    )
    parser.add_argument(
        "--reverse",
        action="store_true",
        help="from the order of the ids to that of the legacy 'mod'",
    )
    return parser
