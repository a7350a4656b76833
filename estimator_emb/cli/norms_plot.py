"""Draws the distribution of the norms of tables' rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from estimator_emb.checkpoints.reading.statistics import TableStatistics, norms_of_bins

MOST_TABLES = 24
"""A figure has at most this many tables, the largest."""

_BARS = 60


def draw(tables: Sequence[TableStatistics], file: str) -> None:
    """Writes a figure to a .png file, with one panel for each of the largest tables."""
    from matplotlib.figure import Figure

    chosen = sorted(tables, key=lambda table: -table.bytes)[:MOST_TABLES]
    columns = min(3, max(1, len(chosen)))
    lines = -(-max(1, len(chosen)) // columns)
    figure = Figure(figsize=(4.6 * columns, 0.5 + 2.9 * lines), layout="constrained")
    for index, table in enumerate(chosen):
        _draw(figure.add_subplot(lines, columns, index + 1), table)
    left = len(tables) - len(chosen)
    more = f"; {left} smaller tables are left out" if left else ""
    figure.suptitle(
        f"Rows by their Euclidean norm, with 5 %, 50 % and 95 % of them{more}", fontsize=11
    )
    figure.savefig(file)


def _draw(axes: Any, table: TableStatistics) -> None:
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
