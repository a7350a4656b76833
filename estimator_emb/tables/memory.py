# SPDX-License-Identifier: Apache-2.0
"""Refuses tables that cannot fit into the memory of this machine."""

import os
import pathlib
import re
from collections.abc import Sequence

from estimator_emb.spec.resolved import Table
from estimator_emb.tables.description import bytes_of

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""The files in which Linux has the limit of a container, of cgroups 2 and 1."""


def check_fits(tables: Sequence[Table], training: bool) -> None:
    """Raises MemoryError, before allocation, for tables and slots beyond all memory and swap."""
    needed = sum(bytes_of(table, training) for table in tables)
    there = of_machine()
    if there is None or needed <= there:
        return
    largest = max(tables, key=lambda table: bytes_of(table, training))
    with_slots = " with slots" if training else ""
    raise MemoryError(
        f"The embedding tables need {needed / 1e6:,.1f} MB{with_slots}, and this machine has "
        f"{there / 1e6:,.1f} MB of memory. The largest is {largest.name!r}: "
        f"{largest.config.vocabulary_size:,} rows of {largest.config.dimension}, "
        f"{bytes_of(largest, training) / 1e6:,.1f} MB{with_slots}. Make tables smaller, choose an "
        "optimizer with fewer slots, divide them over parameter servers on several machines, or "
        "use a machine with more memory."
    )


def of_machine() -> int | None:
    """Returns the bytes of memory and swap that this process can have, if known."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    if physical <= 0:
        return None
    return min([physical + _swap(), *_limits()])


def _swap() -> int:
    found = re.search(r"^SwapTotal: *(\d+) kB", _text("/proc/meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _limits() -> list[int]:
    return [int(text) for text in map(_text, _LIMITS) if text.strip().isdigit()]


def _text(file: str) -> str:
    try:
        return pathlib.Path(file).read_text()
    except OSError:
        return ""
