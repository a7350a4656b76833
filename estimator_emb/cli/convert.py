# SPDX-License-Identifier: Apache-2.0
"""Puts tables of a legacy 'mod' checkpoint in the order of their ids: `estimator-emb convert`."""

import sys

import tensorflow as tf
import tqdm

from estimator_emb import checkpoint
from estimator_emb.cli import parsers
from estimator_emb.messages.text_columns import escaped


def main(args: list[str]) -> int:
    """Converts a checkpoint and prints what was done.

    Returns:
      0; 2 if an argument is wrong, or if the checkpoint cannot be read or written, and then nothing
      is left behind.
    """
    options = parsers.parse("convert", args)
    reverse = options.reverse or options.to_hosts is not None
    try:
        with tqdm.tqdm(unit="B", unit_scale=True, disable=None) as bar:

            def progress(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            conversion = checkpoint.convert(
                options.source,
                options.destination,
                options.table,
                options.hosts,
                to="mod" if reverse else "ids",
                progress=progress,
                to_hosts=options.to_hosts,
                source_order=options.source_order,
                force=options.force,
            )
    except (ValueError, tf.errors.OpError, OSError) as error:
        text = str(getattr(error, "message", error)).removeprefix("convert: ")
        print(f"estimator-emb convert: {escaped(text)}", file=sys.stderr)
        return 2
    for name in conversion.permuted:
        print(f"moved rows of {escaped(name)}")
    for name in conversion.left:
        print(f"left the rows of {escaped(name)} as they were")
    for name in conversion.dropped:
        print(f"left out {escaped(name)}")
    print(f"from {_order(conversion.hosts)} to {_order(conversion.to_hosts)}")
    print(escaped(conversion.path))
    return 0


def _order(hosts: int) -> str:
    return "the order of the ids" if hosts == 1 else f"the order of 'mod' over {hosts} hosts"
