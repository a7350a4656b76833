# SPDX-License-Identifier: Apache-2.0
"""Writes tables for other programs, or shows the neighbours of a row: `estimator-emb export`."""

import argparse
import re
import sys

import tensorflow as tf
import tqdm

from estimator_emb import checkpoint
from estimator_emb.checkpoints.formats import exporting
from estimator_emb.cli import parsers
from estimator_emb.messages.text_columns import escaped


def main(args: list[str]) -> int:
    """Exports tables, or prints the rows nearest to one.

    Returns:
      0; 2 if an argument is wrong or the checkpoint cannot be read; then nothing is left behind.
    """
    options = parsers.parse("export", args)
    try:
        if options.like is not None:
            _show_nearest(options)
        else:
            _export(options)
    except (ValueError, tf.errors.OpError, OSError) as error:
        text = re.sub("^(export|nearest|table): ", "", str(getattr(error, "message", error)))
        print(f"estimator-emb export: {escaped(text)}", file=sys.stderr)
        return 2
    return 0


def _vocabularies(options: argparse.Namespace) -> dict[str, str]:
    files: dict[str, str] = {}
    for given in options.vocabulary:
        table, sign, file = given.partition("=")
        if not (table and sign and file) or table in files:
            raise ValueError(f"--vocabulary must be TABLE=FILE, once for a table; got {given!r}.")
        files[table] = file
    return files


def _export(options: argparse.Namespace) -> None:
    if options.out is None:
        raise ValueError("name OUT, the folder to write.")
    with tqdm.tqdm(unit="B", unit_scale=True, disable=None) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        written = checkpoint.export(
            options.checkpoint,
            options.out,
            options.to,
            options.table,
            options.slots,
            _vocabularies(options),
            options.order,
            progress,
        )
    for path in written:
        print(path)
    told = exporting.format_of(options.to).told(options.out.rstrip("/"), options.slots)
    if told:
        print(told)


def _show_nearest(options: argparse.Namespace) -> None:
    if options.table is None or len(options.table) != 1:
        raise ValueError("--like needs one --table.")
    if options.out is not None or options.slots:
        raise ValueError("--like shows rows: it takes neither OUT nor --slots.")
    (table,) = options.table
    files = _vocabularies(options)
    if set(files) - {table}:
        raise ValueError(f"--vocabulary must be of table {table!r}; got {sorted(files)}.")
    file = files.get(table)
    arguments = (file, options.count, options.order)
    path = options.checkpoint
    try:
        found = checkpoint.nearest(path, table, options.like, *arguments)
    except ValueError:
        if not options.like.isdecimal():
            raise
        found = checkpoint.nearest(path, table, int(options.like), *arguments)
    for number, label, cosine in found:
        print(f"{cosine:7.4f}  {number:>10}" + ("" if label is None else f"  {escaped(label)}"))
