# SPDX-License-Identifier: Apache-2.0
"""Parsers of the subcommands that read checkpoints: inspect, convert and export."""

from __future__ import annotations

import argparse

from estimator_emb.cli import argument_types
from estimator_emb.names.formats import EXPORT_FORMATS


def inspect() -> argparse.ArgumentParser:
    """Returns the parser of `estimator-emb inspect`."""
    parser = argparse.ArgumentParser(
        prog="estimator-emb inspect",
        description="""Lists the variables of a checkpoint: shapes, sizes, optimizers and slots.

    estimator-emb inspect CHECKPOINT
    estimator-emb inspect CHECKPOINT --values --against OTHER --plot norms.png

A checkpoint is named by its prefix, such as /models/a/model.ckpt-100; a folder stands for the
latest checkpoint in it. The first line says which kind of program has written it, as far as it
tells. Slots of embedding optimizers are listed below their table. Without options, no values are
read. With them, each is read once, in pieces.
""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", help="prefix of a checkpoint, or its folder")
    parser.add_argument(
        "--values",
        action="store_true",
        help="also reads the tables: NaN and infinite numbers, rows that were never trained, norms "
        "of the rows (mean, 5, 50 and 95 percent, largest)",
    )
    parser.add_argument(
        "--against",
        metavar="OTHER",
        help="also compares all values with those of another checkpoint",
    )
    parser.add_argument(
        "--plot",
        metavar="FILE.png",
        help="also draws how the norms of the rows of each table are distributed; needs matplotlib",
    )
    return parser


def convert() -> argparse.ArgumentParser:
    """Returns the parser of `estimator-emb convert`."""
    parser = argparse.ArgumentParser(
        prog="estimator-emb convert",
        description="""Puts the tables of a legacy 'mod' checkpoint in the order of their ids.

    estimator-emb convert OLD NEW --table='*/embedding_weights' --table=words

The legacy TPUEstimator with partition_strategy='mod' saved the rows of its tables host by host. The
new checkpoint has them in the order of their ids, as every checkpoint of this package has, and
restores under either strategy and any number of hosts. Slots move with their tables; the legacy
helper variables are left out; everything else is copied. The number of hosts is read from the
checkpoint. The new one says in a small variable how its rows are ordered, and is not converted
again. It is read again and compared before it appears.
""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", help="prefix of a checkpoint, or its folder")
    parser.add_argument(
        "destination",
        help="a folder; or the prefix of the new checkpoint, such as new/model.ckpt-100",
    )
    parser.add_argument(
        "--table",
        action="append",
        required=True,
        help="name of a table, or a pattern with * and ?, which matches embedding tables only; "
        "may be given several times",
    )
    parser.add_argument(
        "--hosts",
        type=argument_types.at_least_one,
        metavar="N",
        help="number of TPU hosts that held the tables; by default what the checkpoint says",
    )
    parser.add_argument(
        "--from",
        dest="source_order",
        choices=("mod", "div"),
        help="partition_strategy of the program that wrote OLD, where neither a record nor a graph "
        "(its .meta file) says it",
    )
    target = parser.add_mutually_exclusive_group()
    target.add_argument(
        "--to-hosts",
        type=argument_types.at_least_one,
        metavar="M",
        help="writes the order of 'mod' over M hosts, whichever order OLD has",
    )
    target.add_argument(
        "--reverse",
        action="store_true",
        help="from the order of the ids to that of 'mod' over --hosts hosts",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="believes --hosts and --from against slices and names, for a checkpoint that another "
        "program has written again; never against a record or a graph",
    )
    return parser


def export() -> argparse.ArgumentParser:
    """Returns the parser of `estimator-emb export`."""
    parser = argparse.ArgumentParser(
        prog="estimator-emb export",
        usage="estimator-emb export [options] CHECKPOINT OUT --to=FORMAT\n"
        "       estimator-emb export [options] CHECKPOINT --table=NAME --like=ROW",
        description="""Writes tables of a checkpoint for others, or shows a row's neighbours.

    estimator-emb export MODEL_DIR OUT --to=parquet --table=words --vocabulary words=words.txt
    estimator-emb export MODEL_DIR --table=words --vocabulary words=words.txt --like "the matrix"

OUT is a new folder, which appears when it is complete. Rows are in the order of their ids.

--to=tf2 prints which variable became which, and says what a checkpoint does not hold: from Python,
estimator_emb.embedding.checkpoint_to_tensorflow takes the program's EmbeddingConfigSpec, and makes
the objects of tf.tpu.experimental.embedding too. --to=keras writes tables.h5, for
model.load_weights("tables.h5", by_name=True) where layers are called as the tables, with _ for /.
""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="its prefix, or its folder")
    parser.add_argument("out", metavar="OUT", nargs="?", help="the new folder")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--to",
        choices=tuple(EXPORT_FORMATS),
        help="the format: " + ", ".join(entry.line for entry in EXPORT_FORMATS.values()),
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
        type=argument_types.at_least_one,
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
    return parser
