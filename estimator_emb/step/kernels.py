# SPDX-License-Identifier: Apache-2.0
"""What looks tables up and updates them: TensorFlow's own ops here, C++ in `native.kernels`."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import tensorflow as tf

from estimator_emb.native.choice import kernels_for
from estimator_emb.step import checks, lookup, update
from estimator_emb.step.inputs import Batch, Ids
from estimator_emb.step.transfer import Transfer, waits_for, whole_step
from estimator_emb.step.update import RowUpdate
from estimator_emb.tables import storage
from estimator_emb.tables.storage import StoredTable


class Kernels(Protocol):
    """Lookup and update of the tables of one step; each method is called once, in this order.

    Attributes:
      checked: after the first activation of `lookup`, a tensor that cannot be computed where there
        is something bad in the batch.
    """

    checked: tf.Tensor | None

    def lookup(self, batch: Batch, used: Sequence[Ids]) -> Iterator[tf.Tensor]:
        """Yields the activations of `used`, table by table, after the whole batch was found good.

        Args:
          batch: every feature, unchecked.
          used: the features to look up, in the order of the tables.
        """

    def finish_lookup(self) -> None:
        """Carries over to the update what `lookup` has not; outside of the scope of the lookup."""

    def update(self, gradients: Iterator[tf.Tensor], rates: Sequence[tf.Tensor]) -> tf.Operation:
        """Returns one optimizer step of every table.

        Args:
          gradients: of the activations that `lookup` gave, in its order; each is computed when it
            is taken.
          rates: the learning rate of each table, float32 scalars.
        """


class TensorFlowKernels:
    """`Kernels` of TensorFlow's own ops, which serve every table.

    Args:
      tables: the tables, with their optimizers where they are updated.
      clipping_limit: of the spec.
      num_cores: how many cores share the batch.
      transfer: carries what the lookup finds out to an update that does not run beside it; None
        where it does.
    """

    def __init__(
        self,
        tables: Sequence[StoredTable],
        clipping_limit: float | None,
        num_cores: int,
        transfer: Transfer | None,
    ):
        self._tables = tables
        self._clipping_limit = clipping_limit
        self._num_cores = num_cores
        self._transfer = transfer
        self._rows: dict[str, tf.Tensor] = {}
        self._occurrences: dict[str, list[lookup.Occurrences]] = {}
        self._weights: dict[str, tf.Tensor] = {}
        self._read: list[tf.Tensor] = []
        self.checked: tf.Tensor | None = None

    def lookup(self, batch: Batch, used: Sequence[Ids]) -> Iterator[tf.Tensor]:
        good, self.checked = checks.checked(batch.ids, batch.size)
        keys = {ids.feature.key for ids in used}
        for table in self._tables:
            of_table = [
                ids for ids in good if ids.feature.key in keys and ids.table.name == table.name
            ]
            rows, occurrences = lookup.distinct(of_table, table.config.combiner)
            values = storage.read(table.variables, rows)
            self._read.append(values)
            for of_feature in occurrences:
                yield lookup.combine(values, of_feature)
            if self._transfer:
                rows = self._transfer.carried(rows)
                occurrences = [
                    self._transfer.carried_occurrences(of_feature) for of_feature in occurrences
                ]
            elif not any(shard.shared for shard in table.variables):
                self._weights[table.name] = values
            self._rows[table.name], self._occurrences[table.name] = rows, occurrences

    def finish_lookup(self) -> None:
        """Does nothing: `lookup` has carried over what it found, table by table."""

    def update(self, gradients: Iterator[tf.Tensor], rates: Sequence[tf.Tensor]) -> tf.Operation:
        updates = [self._updates(table, gradients) for table in self._tables]
        # A gradient need not depend on the activations; the update waits for them all the same.
        with tf.control_dependencies(waits_for(self._read, self._transfer)):
            done = [
                update.apply(
                    table.variables, table.trained_by, rate, of_table, self._clipping_limit
                )
                for table, rate, of_table in zip(self._tables, rates, updates, strict=True)
            ]
        return whole_step(done, self._transfer)

    def _updates(self, table: StoredTable, gradients: Iterator[tf.Tensor]) -> list[RowUpdate]:
        occurrences = self._occurrences[table.name]
        return update.of_batch(
            self._rows[table.name],
            occurrences,
            [next(gradients) for _ in occurrences],
            table.trained_by,
            table.config.dimension,
            self._num_cores,
            self._weights.get(table.name),
        )


class BothKernels:
    """`Kernels` of which native ones serve some tables, and TensorFlow's ops the rest.

    Args:
      tables: all tables.
      native: serves those that are not in `rest`.
      of_tensorflow: serves those of `rest`.
      rest: see there.
    """

    def __init__(
        self,
        tables: Sequence[StoredTable],
        native: Kernels,
        of_tensorflow: Kernels,
        rest: Sequence[StoredTable],
    ):
        self._both = native, of_tensorflow
        self._rest = {table.name for table in rest}
        self._tables = [table.name for table in tables]
        self._used: list[Ids] = []
        self.checked: tf.Tensor | None = None

    def lookup(self, batch: Batch, used: Sequence[Ids]) -> Iterator[tf.Tensor]:
        self._used = list(used)
        native, of_tensorflow = self._both
        of_native, of_rest = self._divided([ids.table.name for ids in used], used)
        # The first checks the whole batch, so that no feature has another size than the others.
        activations = [iter(list(native.lookup(batch, of_native)))]
        of_rest_alone = [ids for ids in batch.ids if ids.table.name in self._rest]
        with tf.control_dependencies([native.checked]):
            again = dataclasses.replace(batch, ids=of_rest_alone)
            activations.append(iter(list(of_tensorflow.lookup(again, of_rest))))
        with tf.control_dependencies([of_tensorflow.checked]):
            self.checked = tf.identity(native.checked)
        for ids in used:
            yield next(activations[ids.table.name in self._rest])

    def finish_lookup(self) -> None:
        for kernels in self._both:
            kernels.finish_lookup()

    def update(self, gradients: Iterator[tf.Tensor], rates: Sequence[tf.Tensor]) -> tf.Operation:
        of_features = self._divided([ids.table.name for ids in self._used], list(gradients))
        of_tables = self._divided(self._tables, rates)
        return tf.group(
            *(
                kernels.update(iter(own_gradients), own_rates)
                for kernels, own_gradients, own_rates in zip(
                    self._both, of_features, of_tables, strict=True
                )
            )
        )

    def _divided(self, tables: Sequence[str], values: Sequence[Any]) -> tuple[list, list]:
        """Returns those of `values` that belong to native tables, and those of the rest."""
        pairs = list(zip(tables, values, strict=True))
        return (
            [value for table, value in pairs if table not in self._rest],
            [value for table, value in pairs if table in self._rest],
        )


def choose(
    tables: Sequence[StoredTable],
    clipping_limit: float | None,
    num_cores: int,
    transfer: Transfer | None,
    native: bool,
    servers: Sequence[str] = (),
) -> Kernels:
    """Returns native kernels where they can do what a step must, else TensorFlow's ops.

    Args:
      tables: as in `TensorFlowKernels`.
      clipping_limit: as in `TensorFlowKernels`.
      num_cores: as in `TensorFlowKernels`.
      transfer: as in `TensorFlowKernels`.
      native: False leaves the native kernels out.
      servers: host:port of each parameter server.
    """
    found, rest = None, tables
    if native:
        found, rest = kernels_for(tables, clipping_limit, num_cores, transfer, servers)
    if found is not None and not rest:
        return found
    of_tensorflow = TensorFlowKernels(rest, clipping_limit, num_cores, transfer)
    return of_tensorflow if found is None else BothKernels(tables, found, of_tensorflow, rest)
