# SPDX-License-Identifier: Apache-2.0
"""Writes tables for other programs, or shows the neighbours of a row: `estimator-emb export`."""

import argparse
import json
import re
import sys

import tensorflow as tf
import tqdm

from estimator_emb import checkpoint
from estimator_emb.checkpoints.formats import keras_weights, tensorflow2
from estimator_emb.cli import parsers
from estimator_emb.messages.text_columns import aligned, escaped


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
    if options.to == "tf2":
        _print_mapping(options.out, options.slots)
    if options.to == "keras":
        _print_layers(f"{options.out.rstrip('/')}/tables.h5")


def _print_layers(file: str) -> None:
    """Prints the layers for which the weights are, as a model would make them."""
    print(f"\nmodel.load_weights({file!r}, by_name=True) fills these layers:\n")
    for name, (rows, dimension) in keras_weights.layers(file).items():
        print(f"Embedding({rows}, {dimension}, name={name!r})")


def _print_mapping(folder: str, slots: bool) -> None:
    """Prints what `tables.json` says: which variable became which, and what is not in there."""
    with tf.io.gfile.GFile(f"{folder.rstrip('/')}/tables.json") as file:
        contents = json.load(file)
    rows = [("table", "optimizer", "variable", "in the new checkpoint")]
    for table in contents["tables"]:
        shown = table["name"], table["optimizer"] or ("none" if slots else "")
        places = {name: tensorflow2.shown(key) for name, key in table["variables"].items()}
        places |= dict.fromkeys(table["left_out"], "left out, as TensorFlow 2 has no such slot")
        for name, place in places.items():
            rows.append((*shown, name, place))
            shown = "", ""
    if contents["step"] is not None:
        rows.append(("", "", "global_step", f"step, {contents['step']}"))
    print(f"\n{aligned(rows)}\n")
    missing = ", ".join(contents["not_in_a_checkpoint"])
    print(
        f"Not in a checkpoint, but in the program's EmbeddingConfigSpec: {missing}.\n"
        "estimator_emb.embedding.checkpoint_to_tensorflow takes the spec, and translates these too."
    )


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
