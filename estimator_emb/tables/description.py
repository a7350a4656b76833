# SPDX-License-Identifier: Apache-2.0
"""Describes for the log which tables train where, and how large they are."""

import collections
from collections.abc import Mapping, Sequence

from estimator_emb.optimizers import OptimizationParameters
from estimator_emb.spec.resolved import Table


def bytes_of(table: Table, with_slots: bool = True) -> int:
    """Returns the bytes of a table's float32 values, and of its slots."""
    slots = len(table.optimizer.slots) if table.optimizer is not None and with_slots else 0
    return 4 * table.config.vocabulary_size * table.config.dimension * (1 + slots)


def describe(
    tables: Sequence[Table], parameters: Mapping[str, OptimizationParameters], where: str
) -> str:
    """Returns the line of the log; `where` says what trains the tables, e.g. 'on the host'."""
    sizes = {table.name: table.config.vocabulary_size * table.config.dimension for table in tables}
    rows = sum(table.config.vocabulary_size for table in tables)
    floats = sum(size * (1 + len(parameters[name].slots)) for name, size in sizes.items())
    by_optimizer = collections.Counter(
        type(parameters[name]).__name__.removesuffix("Parameters") for name in sizes
    )
    optimizers = ", ".join(f"{name} x {n}" for name, n in sorted(by_optimizer.items()))
    return (
        f"Embedding tables train {where}: {len(tables)} tables, {rows:,} rows, "
        f"{sum(sizes.values()):,} parameters, {4 * floats / 1e6:,.1f} MB with slots ({optimizers})."
    )
