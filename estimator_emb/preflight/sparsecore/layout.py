# SPDX-License-Identifier: Apache-2.0
"""Lays tables out over SparseCores: pads them, and stacks those that one call can serve.

`tf.tpu.experimental.embedding.TPUEmbeddingV2` of TensorFlow 2.21 makes the same layout.
"""

import dataclasses
from collections.abc import Sequence

from estimator_emb.spec.resolved import Table

PADDING = 8
"""A table's dimension, and its rows on one SparseCore, are padded to a multiple of this."""

STACK_ACTIVATION_BYTES = 2 * 2**20
"""The activations of a stack take less than this on one SparseCore."""

STACK_WEIGHT_BYTES = 2**31
"""The weights of a stack take less than this on one chip."""


@dataclasses.dataclass(frozen=True)
class SparseCoreLimits:
    """The sizes for which SparseCore's buffers are compiled; TPUEmbeddingV2 has these defaults.

    A compiled program serves no batch that needs more. TPUEmbeddingV2 divides a batch into
    minibatches that keep to the first two.

    Attributes:
      max_ids_per_partition: the most ids that the samples of one SparseCore have among the rows of
        another, in one minibatch.
      max_unique_ids_per_partition: the most distinct ids among these; None becomes the smaller of
        256 and `max_ids_per_partition`.
      max_ids_per_chip_per_sample: the number of ids of a sample, on average over one chip.
      max_minibatches: the most minibatches into which one SparseCore's share of a batch is divided.
    """

    max_ids_per_partition: int = 256
    max_unique_ids_per_partition: int | None = None
    max_ids_per_chip_per_sample: int = 64
    max_minibatches: int = 64

    def __post_init__(self) -> None:
        if self.max_unique_ids_per_partition is None:
            smaller = min(256, self.max_ids_per_partition)
            object.__setattr__(self, "max_unique_ids_per_partition", smaller)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value < 1:
                raise ValueError(
                    f"SparseCoreLimits: {field.name} must be at least 1; got {value!r}."
                )

    def __str__(self) -> str:
        return (
            f"in a minibatch at most {self.max_ids_per_partition} ids, "
            f"{self.max_unique_ids_per_partition} of them distinct, of the samples of one "
            f"SparseCore among the rows of another; at most {self.max_minibatches} minibatches; "
            f"on a chip {self.max_ids_per_chip_per_sample} ids a sample on average"
        )


@dataclasses.dataclass(frozen=True)
class Chips:
    """The chips over which tables are divided, each a core of the program with `sparse_cores`."""

    count: int
    sparse_cores: int

    @property
    def partitions(self) -> int:
        """Returns the number P of SparseCores of all chips; row r of a table is on r mod P."""
        return self.count * self.sparse_cores


@dataclasses.dataclass(frozen=True)
class Stack:
    """Tables that one lookup and one update serve, because their rows are trained alike.

    Attributes:
      tables: sorted by name.
      dimension: padded.
      rows: of all tables on one chip, padded.
      samples: number of activations on one chip, positions of sequences counted one by one.
      used_bytes: bytes of weights and slots on one chip without padding, on average.
    """

    tables: tuple[Table, ...]
    dimension: int
    rows: int
    samples: int
    used_bytes: float

    @property
    def slots(self) -> int:
        optimizer = self.tables[0].optimizer
        return len(optimizer.slots) if optimizer else 0

    @property
    def table_bytes(self) -> int:
        """Returns the bytes of the weights and slots on one chip."""
        return 4 * self.rows * self.dimension * (1 + self.slots)


def stacks_of(tables: Sequence[Table], batch: int, chips: Chips) -> list[Stack]:
    """Returns the stacks of tables, for `batch` samples on a chip, by name of the first table."""
    groups: dict[object, list[list[Table]]] = {}
    for table in sorted(tables, key=lambda table: table.name):
        config = table.config
        key = (
            padded(config.dimension, PADDING),
            table.optimizer,
            config.learning_rate,
            config.learning_rate_fn,
        )
        stacks = groups.setdefault(key, [])
        for stack in stacks:
            if _fits(_stack([*stack, table], batch, chips), chips):
                stack.append(table)
                break
        else:
            stacks.append([table])
    found = [_stack(stack, batch, chips) for stacks in groups.values() for stack in stacks]
    return sorted(found, key=lambda stack: stack.tables[0].name)


def padded(size: int, multiple: int) -> int:
    """Returns a size rounded up to a multiple of another."""
    return -(-size // multiple) * multiple


def _stack(tables: Sequence[Table], batch: int, chips: Chips) -> Stack:
    configs = [table.config for table in tables]
    rows = sum(padded(config.vocabulary_size, PADDING * chips.partitions) for config in configs)
    samples = sum(
        batch * (feature.max_sequence_length or 1) for table in tables for feature in table.features
    )
    numbers = sum(config.vocabulary_size * config.dimension for config in configs)
    stack = Stack(
        tuple(tables), padded(configs[0].dimension, PADDING), rows // chips.count, samples, 0.0
    )
    return dataclasses.replace(stack, used_bytes=4 * numbers * (1 + stack.slots) / chips.count)


def _fits(stack: Stack, chips: Chips) -> bool:
    row = 4 * stack.dimension
    return (
        stack.samples * row // chips.sparse_cores < STACK_ACTIVATION_BYTES
        and stack.rows * row < STACK_WEIGHT_BYTES
    )
