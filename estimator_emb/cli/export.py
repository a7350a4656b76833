"""Exports tables of a checkpoint: `estimator-emb export`."""

import argparse

from estimator_emb.catalog import formats
from estimator_emb.cli import parsing
from estimator_emb.reporting.text_columns import escaped

DETAILS = """\
    estimator-emb export MODEL_DIR OUT --to=parquet --table=words --vocabulary words=words.txt

OUT is a new folder. It appears when it is complete. Rows are in the order of their ids.

--to=tf2 prints the old and new names of the variables, and what a checkpoint does not contain.
From Python, estimator_emb.embedding.checkpoint_to_tensorflow takes the program's
EmbeddingConfigSpec, and also creates the objects of tf.tpu.experimental.embedding.

--to=keras writes tables.h5, for model.load_weights("tables.h5", by_name=True). The layers must have
the names of the tables, with _ for /.
"""


def fill_parser(parser: parsing.Parser) -> None:
    """Adds the arguments."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="prefix or folder of a checkpoint")
    parser.add_argument("out", metavar="OUT", help="the new folder")
    parser.add_argument(
        "--to",
        required=True,
        choices=tuple(formats.EXPORT_FORMATS),
        help=f"the format: {', '.join(one.line for one in formats.EXPORT_FORMATS.values())}",
    )
    parser.add_argument(
        "--table",
        action="append",
        metavar="NAME",
        help="name of a table or its column. May be given several times. Default: all tables",
    )
    parser.add_argument("--slots", action="store_true", help="also write the optimizers' slots")
    parser.add_argument(
        "--vocabulary",
        action="append",
        default=[],
        metavar="TABLE=FILE",
        help="labels of a table's rows: a text file with a label per line, in the order of the ids",
    )
    parser.add_argument(
        "--allow-unlabelled",
        action="store_true",
        help="allow a table to have more rows than its vocabulary. The last rows get no label",
    )
    parser.add_order()


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
    from estimator_emb.checkpoints.formats import exporting
    from estimator_emb.reporting import bars

    with bars.work_bar() as progress:
        written = checkpoint.export(
            options.checkpoint,
            options.out,
            options.to,
            options.table,
            options.slots,
            _vocabularies(options),
            options.order,
            progress,
            options.allow_unlabelled,
        )
    for path in written:
        print(escaped(path))
    told = exporting.format_of(options.to).told(options.out.rstrip("/"), options.slots)
    if told:
        print("\n".join(map(escaped, told.split("\n"))))


main = parsing.prints_errors(_export)
