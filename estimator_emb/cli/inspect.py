"""Lists the variables of a checkpoint, and examines their values: `estimator-emb inspect`."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from estimator_emb.cli import parsing
from estimator_emb.reporting.text_columns import aligned, escaped

if TYPE_CHECKING:
    from estimator_emb import checkpoint

DETAILS = """\
    estimator-emb inspect CHECKPOINT
    estimator-emb inspect CHECKPOINT --values

CHECKPOINT is the prefix of a checkpoint, such as /models/a/model.ckpt-100, or a folder for its
latest checkpoint. The first line says in which order the rows of tables are, as far as the
checkpoint tells. Slots of embedding optimizers are listed below their table. Without options, no
values are read. With --values, each value is read once, in pieces.
"""


def fill_parser(parser: parsing.Parser) -> None:
    """Adds the arguments."""
    parser.add_argument("checkpoint", help="prefix of a checkpoint, or its folder")
    parser.add_argument(
        "--values",
        action="store_true",
        help="also read the tables, and show NaN and infinite numbers, rows that were never "
        "trained, and norms of the rows (mean and largest)",
    )


def _print(options: argparse.Namespace) -> None:
    from estimator_emb import checkpoint
    from estimator_emb.reporting import bars

    _list(options.checkpoint)
    if options.values:
        with bars.work_bar(stays=False) as progress:
            found = checkpoint.statistics(options.checkpoint, progress=progress)
        _print_values(found)


def _list(path: str) -> None:
    from estimator_emb import checkpoint
    from estimator_emb.checkpoints.files.checkpoint_reader import CheckpointReader
    from estimator_emb.checkpoints.reading import row_order, saved_variables

    with CheckpointReader(saved_variables.prefix(path)) as values:
        print(f"{escaped(values.path)}, {row_order.described(values)}")
    variables = checkpoint.inspect(path)
    rows = [("variable", "shape", "type", "MB with slots", "optimizer")]
    for variable in variables:
        optimizer = variable.optimizer or ("unknown" if variable.slots else "")
        shape = " x ".join(f"{size:,}" for size in variable.shape) or "scalar"
        megabytes = f"{variable.bytes / 1e6:,.3f}"
        rows.append((variable.name, shape, variable.dtype.name, megabytes, optimizer))
        rows += [
            (f"  {slot.removeprefix(variable.name)}", "", "", "", "") for slot in variable.slots
        ]
    print(aligned(rows))
    total = sum(variable.bytes for variable in variables)
    print(f"{len(variables)} variables, {total / 1e6:,.3f} MB with slots")


def _print_values(found: Sequence["checkpoint.TableStatistics"]) -> None:
    print()
    if not found:
        print("no variable could be a table, so no values are read")
        return
    titles = "table,rows,columns,NaN,infinite,never trained,mean norm,max"
    rows = [tuple(titles.split(","))]
    for one in found:
        untrained = "not known" if one.never_trained is None else f"{one.never_trained:,}"
        norms = (one.mean_norm, one.largest_norm)
        counts = (one.rows, one.dimension, one.nan, one.infinite)
        texts = (f"{count:,}" for count in counts)
        rows.append((one.name, *texts, untrained, *(f"{norm:.4g}" for norm in norms)))
    print(aligned(rows))
    for one in found:
        if one.never_trained is None:
            text = f"rows of {one.name} that were never trained: not known, as {one.why_unknown}"
            print(escaped(text))


main = parsing.prints_errors(_print)
