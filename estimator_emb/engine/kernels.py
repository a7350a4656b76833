"""Defines the kernels that look up and update tables, and implements them with TensorFlow ops."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import tensorflow as tf

from estimator_emb.engine import bad_input, lookup, update
from estimator_emb.engine.inputs import Batch, Source
from estimator_emb.engine.pipelining import LookaheadBuffer, whole_step
from estimator_emb.engine.tables import storage
from estimator_emb.engine.tables.storage import StoredTable
from estimator_emb.engine.update import RowUpdate


class Kernels(Protocol):
    """Looks up and updates the tables of a step. Each method is called once, `lookup` first.

    Attributes:
      checked: a tensor that fails in a step with a bad batch. `lookup` sets it before it yields its
        first activation.
      batch: the batch in the form that is looked up. `lookup` sets it together with `checked`.
    """

    checked: tf.Tensor | None
    batch: Batch

    def lookup(self, batch: Batch, used: Sequence[Source]) -> Iterator[tf.Tensor]:
        """Yields the activations of `used`, table by table, after checking all of `batch`."""

    def update(self, gradients: Iterator[tf.Tensor], rates: Sequence[tf.Tensor]) -> tf.Operation:
        """Returns the op that updates every table by a step of its optimizer.

        `gradients` yields the gradients of the activations in the order of `lookup`, each computed
        on demand. `rates` has a float32 scalar for each table.
        """


class TensorFlowKernels:
    """`Kernels` that use TensorFlow's own ops and support every table.

    `next_step` keeps the results of the lookup if the update runs in the next session call.
    """

    def __init__(
        self, tables: Sequence[StoredTable], num_cores: int, next_step: LookaheadBuffer | None
    ):
        self._tables = tables
        self._num_cores = num_cores
        self._next_step = next_step
        self._looked_up: dict[str, Any] = {}
        self._read: list[tf.Tensor] = []
        self.checked: tf.Tensor | None = None

    def lookup(self, batch: Batch, used: Sequence[Source]) -> Iterator[tf.Tensor]:
        self.batch = batch
        good, self.checked = bad_input.checked(batch.ids, batch.size)
        keys = {source.feature.key for source in used}
        for table in self._tables:
            of_table = [
                ids for ids in good if ids.feature.key in keys and ids.table.name == table.name
            ]
            rows, occurrences = lookup.distinct(of_table, table.config.combiner)
            values = storage.read_table(table.variables, rows)
            self._read.append(values)
            for of_feature in occurrences:
                yield lookup.combine(values, of_feature)
            weights = None
            if self._next_step:
                rows = self._next_step.carried(rows)
                occurrences = [
                    self._next_step.carried_occurrences(of_feature) for of_feature in occurrences
                ]
            elif not any(shard.shared for shard in table.variables):
                weights = values
            self._looked_up[table.name] = rows, occurrences, weights

    def update(self, gradients: Iterator[tf.Tensor], rates: Sequence[tf.Tensor]) -> tf.Operation:
        updates = [self._updates(table, gradients) for table in self._tables]
        # The update must wait for the lookup, even if the gradients do not depend on it.
        with tf.control_dependencies(self._read):
            done = [
                update.apply(table, rate, of_table)
                for table, rate, of_table in zip(self._tables, rates, updates, strict=True)
            ]
        return whole_step(done, self._next_step)

    def _updates(self, table: StoredTable, gradients: Iterator[tf.Tensor]) -> list[RowUpdate]:
        rows, occurrences, weights = self._looked_up[table.name]
        given = [next(gradients) for _ in occurrences]
        return update.row_updates(table, rows, occurrences, given, self._num_cores, weights)


Factory = Callable[[Sequence[StoredTable], int, LookaheadBuffer | None], Kernels]
"""A function that creates `Kernels`, with the same arguments as `TensorFlowKernels`."""
