"""Sorts the tables of a legacy 'mod' checkpoint by id: `estimator-emb convert`."""

import argparse

from estimator_emb.cli import parsing
from estimator_emb.reporting.text_columns import escaped

DETAILS = """\
    estimator-emb convert OLD NEW --table='*/embedding_weights' --table=words

The legacy TPUEstimator with partition_strategy='mod' saved the rows of its tables host by host. The
new checkpoint has the rows in the order of their ids, like all checkpoints of this package. It
restores with either strategy and any number of hosts. Slots are reordered with their tables. Legacy
helper variables are left out. Everything else is copied. The number of hosts is read from the
checkpoint. A small variable in the new checkpoint records the row order, so that it is not
converted twice. The new checkpoint is read back and compared before it appears.
"""


def fill_parser(parser: parsing.Parser) -> None:
    """Adds the arguments."""
    parser.add_argument("source", help="prefix of a checkpoint, or its folder")
    parser.add_argument(
        "destination",
        help="folder or prefix of the new checkpoint, such as new or new/model.ckpt-100",
    )
    parser.add_argument(
        "--table",
        action="append",
        required=True,
        help="name of a table, or a pattern with * and ? that matches only embedding tables. May "
        "be given several times",
    )
    parser.add_count(
        "--hosts",
        help="number of TPU hosts that held the tables. Default: as the checkpoint says",
    )
    parser.add_order()
    target = parser.add_mutually_exclusive_group()
    target.add_argument(
        "--to-hosts",
        type=parsing.at_least_one,
        metavar="M",
        help="write the rows in the order of 'mod' over M hosts, from any order in OLD",
    )
    target.add_argument(
        "--reverse",
        action="store_true",
        help="move rows from the order of the ids to the order of 'mod' over --hosts hosts",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="trust --hosts and --from more than slices and names, for a checkpoint that another "
        "program has rewritten. A record or a graph still takes precedence",
    )


def _convert(options: argparse.Namespace) -> None:
    from estimator_emb import checkpoint
    from estimator_emb.checkpoints.reading import row_order
    from estimator_emb.reporting import bars

    if options.reverse and options.hosts is None:
        raise ValueError("--reverse needs --hosts, the number of TPU hosts.")
    reverse = options.reverse or options.to_hosts is not None
    with bars.work_bar() as progress:
        conversion = checkpoint.convert(
            options.source,
            options.destination,
            options.table,
            options.hosts,
            to="mod" if reverse else "ids",
            progress=progress,
            to_hosts=options.to_hosts,
            source_order=options.order,
            force=options.force,
        )
    for name in conversion.permuted:
        print(f"moved rows of {escaped(name)}")
    for name in conversion.left:
        print(f"left the rows of {escaped(name)} as they were")
    for name in conversion.dropped:
        print(f"left out {escaped(name)}")
    old, new = map(row_order.in_words, (conversion.hosts, conversion.to_hosts))
    print(f"from {old} to {new}")
    print(escaped(conversion.path))


main = parsing.prints_errors(_convert)
