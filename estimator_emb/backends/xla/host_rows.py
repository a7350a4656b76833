"""Rows of tables on their way between the host's memory and the devices of this process."""

import ctypes
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np


class RowsOfProcess:
    """Divides tables among devices that all belong to this process."""

    def divided(
        self, stack: Any, values: Sequence[np.ndarray], number: int
    ) -> Iterator[np.ndarray]:
        """Yields the parts of a stack's array `number` for each of this host's devices.

        `values` are the rows of each table.
        """
        named = {one.name: rows for one, rows in zip(stack.tables, values, strict=True)}
        parts = [stack.shard(core, named, stack.fills[number]) for core in range(stack.cores)]
        give_back(values)
        while parts:
            yield parts.pop(0)

    def joined(
        self, stack: Any, shards: Mapping[int, np.ndarray]
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the name and the rows of each table. `shards` maps a device to its part."""
        into = {one.name: in_pages(one.rows, one.dimension) for one in stack.tables}
        for device, shard in shards.items():
            stack.unshard(device, shard, into)
        yield from into.items()


def in_pages(rows: int, width: int) -> np.ndarray:
    """Returns float32 zeros in whole pages, which go back to the system when they are freed.

    A variable that is fed the array takes it over without a copy.
    """
    pages = mmap.mmap(-1, max(rows * width * 4, 1), access=mmap.ACCESS_COPY)
    return np.frombuffer(pages, np.float32, rows * width).reshape(rows, width)


def give_back(values: Iterable[np.ndarray]) -> None:
    """Returns the pages of arrays to the system. Nothing may read the arrays any more.

    With oneDNN, TensorFlow keeps the memory of freed tensors for its next tensors.
    """
    if not hasattr(mmap, "MADV_DONTNEED"):  # Not on Windows.
        return
    libc = ctypes.CDLL(None)
    for one in values:
        first = -one.ctypes.data % mmap.PAGESIZE
        size = (one.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
        if size > 0:
            address = ctypes.c_void_p(one.ctypes.data + first)
            libc.madvise(address, ctypes.c_size_t(size), mmap.MADV_DONTNEED)
