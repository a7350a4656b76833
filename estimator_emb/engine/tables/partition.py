"""Divides the rows of a table over shards, by the strategies 'div' and 'mod'.

Both give V // H of V rows to each of H shards, and another row to each of the first V % H shards.
'div' gives each shard consecutive ids. Under 'mod', id k is row k div H of shard k mod H.

Source: `tpu_embedding_configuration.proto` (ShardingStrategy) and `_load_operation` of
tensorflow/python/tpu/tpu_embedding.py, TensorFlow 2.15.
"""

import dataclasses

import numpy as np

FEW_ROWS = 1000
"""A smaller table gets even slices, because a batch needs most of its rows anyway."""
_HEAD = 10
"""Slices are equal in log(1 + row / _HEAD): by Zipf's law, batches use them about equally."""


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
        """The position of each shard's first row in the concatenated shards."""
        return [0, *np.cumsum(self.sizes)[:-1].tolist()]

    def places(self, ids: np.ndarray) -> np.ndarray:
        """Returns the positions of `ids`, int64 [n], in the concatenated shards."""
        if self.strategy == "div":
            return ids
        return np.array(self.starts)[ids % self.shards] + ids // self.shards


def rounds_for(tables: int, servers: int) -> int:
    """Returns the number of rounds for `dealt`, by the number of tables.

    Each round adds variables. Servers get the first slices of tables in turn, so the more tables
    there are, the fewer rounds balance the servers.
    """
    if servers == 1 or tables >= 5 * servers:
        return 1
    return 2 if tables >= servers else 4


def dealt(rows: int, servers: int, rounds: int) -> list[int]:
    """Returns the sizes of a table's consecutive slices, to be placed on the servers in turn.

    All servers get equally many rows, give or take a row. If rows are sorted by frequency, they
    also get similar shares of a batch: slices grow, and each round deals a slice to every server.
    The last round balances what the servers got before. A single round gives even slices.
    """
    even = Partition(rows, min(servers, rows)).sizes
    if rounds == 1 or rows < FEW_ROWS:
        return even
    count = (rounds - 1) * servers
    for percent in range(99, 0, -1):  # Percentage of the rows dealt before the last round.
        head = np.log1p(rows * percent / 100 / _HEAD) * np.arange(count + 1) / count
        slices = np.diff(np.round(_HEAD * np.expm1(head)).astype(np.int64))
        last = np.array(even) - slices.reshape(-1, servers).sum(0)
        if min(slices) > 0 and min(last) >= rows / servers / 10:
            return [*slices.tolist(), *last.tolist()]
    return dealt(rows, servers, rounds - 1)
