# SPDX-License-Identifier: Apache-2.0
"""Lists the variables of a checkpoint, and what their values say: `estimator-emb inspect`."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tqdm

from estimator_emb import checkpoint
from estimator_emb.checkpoints.files.values import Values
from estimator_emb.checkpoints.reading import row_order, saved_variables
from estimator_emb.cli import parsers, plot
from estimator_emb.messages.text_columns import aligned, escaped


def main(args: list[str]) -> int:
    """Prints what a checkpoint holds.

    Returns:
      0; 2 if there is no checkpoint, it is damaged, or an option cannot be done.
    """
    options = parsers.parse("inspect", args)
    try:
        if options.plot:
            plot.check(options.plot)
        _list(options.checkpoint)
        if options.values or options.plot:
            with _bar() as progress:
                found = checkpoint.statistics(options.checkpoint, progress=progress)
            _print_values(found)
            if options.plot:
                plot.norms(found, options.plot)
                print(f"norms of the rows are drawn in {options.plot}")
        if options.against is not None:
            with _bar() as progress:
                differences = checkpoint.differences(options.checkpoint, options.against, progress)
            _print_differences(differences, options.against)
    except (ValueError, tf.errors.OpError, OSError) as error:
        text = str(getattr(error, "message", error)).removeprefix("differences: ")
        print(f"estimator-emb inspect: {escaped(text)}", file=sys.stderr)
        return 2
    return 0


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[int, int], Any]]:
    with tqdm.tqdm(unit="B", unit_scale=True, disable=None, leave=False) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield progress


def _list(path: str) -> None:
    with Values(saved_variables.prefix(path)) as values:
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


def _print_values(found: Sequence[checkpoint.TableStatistics]) -> None:
    print()
    if not found:
        print("no variable could be a table, so no values are read")
        return
    quantiles = ["5%", "50%", "95%"]
    rows = [
        (
            "table",
            "rows",
            "columns",
            "NaN",
            "infinite",
            "never trained",
            "mean norm",
            *quantiles,
            "max",
        )
    ]
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


def _print_differences(differences: Sequence[checkpoint.Difference], other: str) -> None:
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
