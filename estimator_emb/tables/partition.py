# SPDX-License-Identifier: Apache-2.0
"""Divides the rows of a table over shards, by the strategies 'div' and 'mod'.

With V rows over H shards, both strategies give shard i

    V // H + (1 if i < V % H else 0)

rows. 'div' gives each shard a run of consecutive ids; under 'mod', id k is row k div H of shard
k mod H. If V < H, some shards are empty.

Source: `tpu_embedding_configuration.proto` (ShardingStrategy) and `_load_operation` of
tensorflow/python/tpu/tpu_embedding.py, TensorFlow 2.15.
"""

import dataclasses

import numpy as np

STRATEGIES = ("div", "mod")


@dataclasses.dataclass(frozen=True)
class Partition:
    """A division of a table's V >= 1 rows over H >= 1 shards, by the strategy 'div' or 'mod'."""

    vocabulary_size: int
    shards: int
    strategy: str = "div"

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"partition strategy must be 'div' or 'mod'; got {self.strategy!r}.")
        for name in ("vocabulary_size", "shards"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")

    @property
    def sizes(self) -> list[int]:
        rows, more = divmod(self.vocabulary_size, self.shards)
        return [rows + (shard < more) for shard in range(self.shards)]

    @property
    def starts(self) -> list[int]:
        """The position of each shard when the shards are written one after the other."""
        return [0, *np.cumsum(self.sizes)[:-1].tolist()]

    def ids(self, shard: int) -> np.ndarray:
        if self.strategy == "mod":
            return np.arange(shard, self.vocabulary_size, self.shards, dtype=np.int64)
        start = self.starts[shard]
        return np.arange(start, start + self.sizes[shard], dtype=np.int64)

    def places(self, ids: np.ndarray | None = None) -> np.ndarray:
        """Returns, as int64 [n], where `ids` stand when the shards are written one after the other.

        None stands for all ids: `written[places()]` is the table in the order of its ids.
        """
        if ids is None:
            ids = np.arange(self.vocabulary_size, dtype=np.int64)
        if self.strategy == "div":
            return ids
        return np.array(self.starts)[ids % self.shards] + ids // self.shards
