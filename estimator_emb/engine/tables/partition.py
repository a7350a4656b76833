"""Divides the rows of a table over shards, by the strategies 'div' and 'mod'.

Of V rows, both give each of H shards V // H, and one more to each of the first V % H. 'div' gives
each shard a run of consecutive ids; under 'mod', id k is row k div H of shard k mod H.

Source: `tpu_embedding_configuration.proto` (ShardingStrategy) and `_load_operation` of
tensorflow/python/tpu/tpu_embedding.py, TensorFlow 2.15.
"""

import dataclasses

import numpy as np

FEW_ROWS = 1000
"""A table of fewer rows is not dealt out: a batch has most of them, wherever they are."""
_HEAD = 10
"""Dealt slices are equal in log(1 + row / _HEAD), which batches by Zipf's law have about evenly."""


@dataclasses.dataclass(frozen=True)
class Partition:
    """A division of a table's V >= 1 rows over H >= 1 shards, by the strategy 'div' or 'mod'."""

    vocabulary_size: int
    shards: int
    strategy: str = "div"

    @property
    def sizes(self) -> list[int]:
        rows, more = divmod(self.vocabulary_size, self.shards)
        return [rows + (shard < more) for shard in range(self.shards)]

    @property
    def starts(self) -> list[int]:
        """The position of each shard when the shards are written one after the other."""
        return [0, *np.cumsum(self.sizes)[:-1].tolist()]

    def places(self, ids: np.ndarray) -> np.ndarray:
        """Returns where `ids`, int64 [n], stand when the shards are written one after the other."""
        if self.strategy == "div":
            return ids
        return np.array(self.starts)[ids % self.shards] + ids // self.shards


def rounds_for(tables: int, servers: int) -> int:
    """Returns in how many rounds `dealt` is to deal each of several tables.

    Rounds cost variables. The more tables there are, the fewer rounds it takes to balance servers
    that get the first slice of a table in turn.
    """
    if servers == 1 or tables >= 5 * servers:
        return 1
    return 2 if tables >= servers else 4


def dealt(rows: int, servers: int, rounds: int) -> list[int]:
    """Returns sizes of consecutive slices of a table, to lie on the servers in turn.

    Every server gets as many rows as another, give or take one. Where rows are sorted by frequency,
    each gets about as many of a batch too: slices grow, and each round deals one to every server.
    The last round makes up for what the servers got before. One round gives even slices.
    """
    even = Partition(rows, min(servers, rows)).sizes
    if rounds == 1 or rows < FEW_ROWS:
        return even
    count = (rounds - 1) * servers
    for percent in range(99, 0, -1):  # Of the rows, before the last round.
        head = np.log1p(rows * percent / 100 / _HEAD) * np.arange(count + 1) / count
        slices = np.diff(np.round(_HEAD * np.expm1(head)).astype(np.int64))
        last = np.array(even) - slices.reshape(-1, servers).sum(0)
        if min(slices) > 0 and min(last) >= rows / servers / 10:
            return [*slices.tolist(), *last.tolist()]
    return dealt(rows, servers, rounds - 1)
