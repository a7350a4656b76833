# SPDX-License-Identifier: Apache-2.0
"""Writes tables for other programs, or shows the neighbours of a row: `estimator-emb export`."""

from __future__ import annotations

import argparse
import json

from estimator_emb.cli import arguments, load_package
from estimator_emb.messages.text_columns import aligned, escaped

DETAILS = """\
    estimator-emb export MODEL_DIR OUT --to=parquet --table=words --vocabulary words=words.txt
    estimator-emb export MODEL_DIR --table=words --vocabulary words=words.txt --like "the matrix"

OUT is a new folder, which appears when it is complete. Rows are in the order of their ids.

--to=tf2 prints which variable became which, and says what a checkpoint does not hold: from Python,
estimator_emb.embedding.checkpoint_to_tensorflow takes the program's EmbeddingConfigSpec, and makes
the objects of tf.tpu.experimental.embedding too. --to=keras writes tables.h5, for
model.load_weights("tables.h5", by_name=True) where layers are called as the tables, with _ for /.
"""


def fill_parser(parser: arguments.Parser) -> None:
    """Adds the arguments."""
    parser.usage = (
        "estimator-emb export [options] CHECKPOINT OUT --to=FORMAT\n"
        "       estimator-emb export [options] CHECKPOINT --table=NAME --like=ROW"
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="its prefix, or its folder")
    parser.add_argument("out", metavar="OUT", nargs="?", help="the new folder")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--to",
        choices=("npz", "parquet", "safetensors", "saved-model", "projector", "tf2", "keras"),
        help="the format: NumPy's, Apache Parquet, safetensors, a SavedModel that looks up ids or "
        "labels, the files of TensorBoard's projector, a checkpoint for TPUEmbedding of TensorFlow "
        "2, or weights for Embedding layers of Keras 2 or 3",
    )
    what.add_argument(
        "--like",
        metavar="ROW",
        help="shows the rows nearest to this one, by the cosine: its label, or its id where there "
        "is no vocabulary or no such label",
    )
    parser.add_argument(
        "--table",
        action="append",
        metavar="NAME",
        help="name of a table, or of its column; may be given several times; by default all",
    )
    parser.add_argument("--slots", action="store_true", help="also writes the optimizers' slots")
    parser.add_argument(
        "--vocabulary",
        action="append",
        default=[],
        metavar="TABLE=FILE",
        help="labels of the rows of a table, one on a line, in the order of the ids",
    )
    parser.add_argument(
        "--count",
        type=arguments.at_least_one,
        default=10,
        metavar="N",
        help="rows of --like; default 10",
    )
    parser.add_argument(
        "--from",
        dest="order",
        choices=("mod", "div"),
        help="partition_strategy of the program that wrote a legacy TPU checkpoint, where it does "
        "not say it",
    )


def main(options: argparse.Namespace) -> int:
    """Exports tables, or prints the rows nearest to one.

    Returns:
      0; 2 if an argument is wrong or the checkpoint cannot be read; then nothing is left behind.
    """
    load_package()
    from estimator_emb.cli import checkpoint_commands

    work = _export if options.like is None else _show_nearest
    return checkpoint_commands.status_of("export", lambda: work(options))


def _vocabularies(options: argparse.Namespace) -> dict[str, str]:
    files: dict[str, str] = {}
    for given in options.vocabulary:
        table, sign, file = given.partition("=")
        if not (table and sign and file) or table in files:
            raise ValueError(f"--vocabulary must be TABLE=FILE, once for a table; got {given!r}.")
        files[table] = file
    return files


def _export(options: argparse.Namespace) -> None:
    from estimator_emb import checkpoint
    from estimator_emb.cli import checkpoint_commands

    if options.out is None:
        raise ValueError("name OUT, the folder to write.")
    with checkpoint_commands.progress_bar() as progress:
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
    """Prints the layers that the weights fill, as a model would make them."""
    from estimator_emb.checkpoints.formats import keras_weights

    print(f"\nmodel.load_weights({file!r}, by_name=True) fills these layers:\n")
    for name, (rows, dimension) in keras_weights.layers(file).items():
        print(f"Embedding({rows}, {dimension}, name={name!r})")


def _print_mapping(folder: str, slots: bool) -> None:
    """Prints what `tables.json` says: which variable became which, and what is not in there."""
    import tensorflow as tf

    from estimator_emb.checkpoints.formats import tensorflow2

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
    from estimator_emb import checkpoint

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
