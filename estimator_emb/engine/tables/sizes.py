"""Computes the sizes of tables, and raises MemoryError if this machine cannot hold them."""

import collections
import os
import pathlib
import re
import sys
from collections.abc import Sequence

from estimator_emb.reporting.text_columns import counted
from estimator_emb.spec.resolved import Table

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Linux files with the memory limit of a container, for cgroups v2 and v1."""


def bytes_of(table: Table, with_slots: bool = True) -> int:
    """Returns the number of bytes of a table's float32 values, optionally with its slots."""
    slots = len(table.optimizer.slots) if table.optimizer is not None and with_slots else 0
    return 4 * table.config.vocabulary_size * table.config.dimension * (1 + slots)


def describe(tables: Sequence[Table], where: str) -> str:
    """Returns the log line about tables. `where` says where they train, e.g. 'on the host'."""
    rows = sum(table.config.vocabulary_size for table in tables)
    floats = sum(bytes_of(table, with_slots=False) for table in tables) // 4
    megabytes = sum(map(bytes_of, tables)) / 1e6
    by_optimizer = collections.Counter(
        type(table.trained_by).__name__.removesuffix("Parameters") for table in tables
    )
    optimizers = ", ".join(f"{name} x {n}" for name, n in sorted(by_optimizer.items()))
    return (
        f"Embedding tables train {where}: {counted(len(tables), 'table')}, "
        f"{counted(rows, 'row')}, {counted(floats, 'parameter')}, "
        f"{megabytes:,.1f} MB with slots ({optimizers})."
    )


def check_fits(tables: Sequence[Table], training: bool, divide: str) -> None:
    """Raises MemoryError, before allocation, if tables and slots exceed all memory and swap.

    `divide` says how several machines can share the tables.
    """
    needed = sum(bytes_of(table, training) for table in tables)
    there = machine_memory()
    if needed <= there:
        return
    largest = max(tables, key=lambda table: bytes_of(table, training))
    with_slots = " with slots" if training else ""
    raise MemoryError(
        f"The embedding tables need {needed / 1e6:,.1f} MB{with_slots}, and this machine has "
        f"{there / 1e6:,.1f} MB of memory. The largest is {largest.name!r}: "
        f"{largest.config.vocabulary_size:,} rows of {largest.config.dimension}, "
        f"{bytes_of(largest, training) / 1e6:,.1f} MB{with_slots}. Make tables smaller, choose an "
        f"optimizer with fewer slots, {divide}, or use a machine with more memory."
    )


def physical() -> int:
    """Returns this machine's memory in bytes, or `sys.maxsize` if the OS does not report it."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf.
        found = 0
    return found if found > 0 else sys.maxsize


def machine_memory() -> int:
    """Returns the number of bytes of memory and swap that this process may use."""
    swap = re.search(r"^SwapTotal: *(\d+) kB", _text("/proc/meminfo"), re.MULTILINE)
    limits = [int(text) for text in map(_text, _LIMITS) if text.strip().isdigit()]
    return min([physical() + (int(swap[1]) * 1024 if swap else 0), *limits])


def _text(file: str) -> str:
    try:
        return pathlib.Path(file).read_text()
    except OSError:
        return ""
