"""Lists the variables of a checkpoint, and examines their values: `estimator-emb inspect`."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from estimator_emb.checkpoints.files import paths
from estimator_emb.cli import parsing
from estimator_emb.reporting.text_columns import aligned, escaped

if TYPE_CHECKING:
    from estimator_emb import checkpoint

DETAILS = """\
    estimator-emb inspect CHECKPOINT
    estimator-emb inspect CHECKPOINT --values --against OTHER --plot norms.png

CHECKPOINT is the prefix of a checkpoint, such as /models/a/model.ckpt-100, or a folder for its
latest checkpoint. The first line says which kind of program wrote the checkpoint, as far as the
checkpoint tells. Slots of embedding optimizers are listed below their table. Without options, no
values are read. With options, each value is read once, in pieces.
"""

_MOST_TABLES = 24
"""The most tables in a figure. The largest tables are shown."""

_BARS = 60


def fill_parser(parser: parsing.Parser) -> None:
    """Adds the arguments."""
    parser.add_argument("checkpoint", help="prefix of a checkpoint, or its folder")
    parser.add_argument(
        "--values",
        action="store_true",
        help="also read the tables, and show NaN and infinite numbers, rows that were never "
        "trained, and norms of the rows (mean, 5, 50 and 95 percent, largest)",
    )
    parser.add_argument(
        "--against",
        metavar="OTHER",
        help="also compare all values with another checkpoint",
    )
    parser.add_plot("also draw the distribution of the row norms of each table. Needs matplotlib")


def _check(options: argparse.Namespace) -> None:
    for path in (options.checkpoint, options.against):
        if path is not None:
            paths.local_prefix(path)


def _print(options: argparse.Namespace) -> None:
    from estimator_emb import checkpoint
    from estimator_emb.reporting import bars

    _list(options.checkpoint)
    if options.values or options.plot:
        with bars.work_bar(stays=False) as progress:
            found = checkpoint.statistics(options.checkpoint, progress=progress)
        _print_values(found)
        if options.plot:
            _plot(found, options.plot)
            print(f"norms of the rows are drawn in {options.plot}")
    if options.against is not None:
        with bars.work_bar(stays=False) as progress:
            differences = checkpoint.differences(options.checkpoint, options.against, progress)
        _print_differences(differences, options.against)


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
    titles = "table,rows,columns,NaN,infinite,never trained,mean norm,5%,50%,95%,max"
    rows = [tuple(titles.split(","))]
    for one in found:
        untrained = "not known" if one.never_trained is None else f"{one.never_trained:,}"
        norms = (one.mean_norm, *one.norm_quantiles, one.largest_norm)
        counts = (one.rows, one.dimension, one.nan, one.infinite)
        texts = (f"{count:,}" for count in counts)
        rows.append((one.name, *texts, untrained, *(f"{norm:.4g}" for norm in norms)))
    print(aligned(rows))
    for one in found:
        if one.never_trained is None:
            text = f"rows of {one.name} that were never trained: not known, as {one.why_unknown}"
            print(escaped(text))


def _print_differences(differences: Sequence["checkpoint.Difference"], other: str) -> None:
    print()
    if not differences:
        print(f"no difference from {other}")
        return
    print(f"differences from {other}:")
    rows = []
    for one in differences:
        if one.what == "values":
            text = f"{one.rows:,} of {one.of_rows:,} rows, by {one.largest:.4g} at most"
        elif one.what in ("shape", "type"):
            text = f"{one.what} {one.first} here and {one.second} there"
        else:
            text = "only here" if one.what == "only in the first" else "only there"
        rows.append((one.name, text))
    print(aligned(rows))


def _plot(tables: Sequence["checkpoint.TableStatistics"], file: str) -> None:
    """Draws a histogram of the row norms of each table, up to the `_MOST_TABLES` largest tables."""
    from matplotlib.figure import Figure

    chosen = sorted(tables, key=lambda table: -table.bytes)[:_MOST_TABLES]
    columns = min(3, max(1, len(chosen)))
    lines = -(-max(1, len(chosen)) // columns)
    figure = Figure(figsize=(4.6 * columns, 0.5 + 2.9 * lines), layout="constrained")
    for index, table in enumerate(chosen):
        _plot_table(figure.add_subplot(lines, columns, index + 1), table)
    left = len(tables) - len(chosen)
    more = f"; {left} smaller tables are left out" if left else ""
    figure.suptitle(
        f"Rows by their Euclidean norm, with 5 %, 50 % and 95 % of them{more}", fontsize=11
    )
    figure.savefig(file)


def _plot_table(axes: Any, table: "checkpoint.TableStatistics") -> None:
    import numpy as np

    from estimator_emb.checkpoints.reading.statistics import norms_of_bins

    name = table.name if len(table.name) <= 44 else f"...{table.name[-41:]}"
    axes.set_title(name, fontsize=9)
    axes.tick_params(labelsize=8)
    text = f"{table.rows:,} rows"
    if table.never_trained is not None:
        text += f", {table.never_trained:,} never trained"
    if table.nan or table.infinite:
        text += f"\n{table.nan:,} NaN, {table.infinite:,} infinite"
    axes.set_xlabel(f"norm\n{text}", fontsize=8)
    axes.set_ylabel("rows", fontsize=8)
    if not table.histogram.sum():
        axes.text(0.5, 0.5, "no finite row", ha="center", transform=axes.transAxes, fontsize=8)
        return
    used = np.flatnonzero(table.histogram)
    middles = np.where(np.arange(1 << 16) == 0, 0, norms_of_bins())[used].astype(np.float64)
    top = table.largest_norm or 1.0
    counts, edges = np.histogram(middles, _BARS, (0.0, top * 1.004), weights=table.histogram[used])
    axes.stairs(counts, edges, fill=True, color="#4477aa")
    for norm, style in zip(table.norm_quantiles, (":", "-", ":"), strict=True):
        axes.axvline(norm, color="#cc3311", linestyle=style, linewidth=1)
    axes.set_xlim(0, edges[-1])


main = parsing.prints_errors(_check, _print)
