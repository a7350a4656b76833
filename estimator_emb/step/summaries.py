# SPDX-License-Identifier: Apache-2.0
"""Shows each table in TensorBoard while it trains, unless `TPUConfig(table_summaries=False)`.

The figures of a step are scalars of the graph's summaries, which tensorflow-estimator's hook
fetches in every `save_summary_steps`-th step. Nothing that other steps fetch depends on them, so
other steps do not compute them. TensorFlow's ops compute them from the ids of the batch and the
gradients of activations, whichever kernels train the tables, and read rows after the update.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.optimizers import gradient_limits
from estimator_emb.optimizers._math import INFINITY
from estimator_emb.private.estimator import LOSS_METRIC_KEY
from estimator_emb.step import inputs, lookup, update
from estimator_emb.step.dropped import DroppedIds
from estimator_emb.step.inputs import Batch, Ids
from estimator_emb.step.transfer import NextStep
from estimator_emb.tables import storage
from estimator_emb.tables.storage import StoredTable

PREFIX = "embedding"
"""Begins the tags of a table: `embedding/<table>/<figure>`."""

_SCOPE = "embedding_summaries"


class TableSummaries:
    """The scalars of all tables of a graph.

    Args:
      checked: a tensor that fails if the batch is bad.
      next_step: keeps the batch for the update of the next session call; None if the update runs
        beside the lookup.
    """

    def __init__(
        self,
        batch: Batch,
        checked: tf.Tensor | None,
        next_step: NextStep | None,
        dropped: DroppedIds | None,
        num_cores: int,
        clipping_limit: float | None,
    ):
        self._every_step: list[tf.Operation] = []
        """Every step must take what the previous session call has kept."""
        self._next_step = next_step
        self._num_cores = num_cores
        self._clipping_limit = clipping_limit
        self._dropped = dict(dropped.of_batch) if dropped else {}
        with tf.name_scope(_SCOPE):
            if next_step is None:
                with tf.control_dependencies([checked]):
                    self._ids = [_copied(ids) for ids in batch.ids]
            else:
                self._ids = [_copied(self._ids_from_before(ids, batch)) for ids in batch.ids]
                self._dropped = self._from_before(self._dropped)

    def added_to(
        self,
        updated: tf.Operation,
        tables: Sequence[StoredTable],
        gradients: Mapping[str, tf.Tensor],
        rates: Sequence[tf.Tensor],
    ) -> tf.Operation:
        """Adds the scalars to the graph's summaries, and returns the op that every step must run.

        `updated` is the update of all tables, `gradients` maps features to those of their
        activations as the update takes them, and `rates` has that of each table.
        """
        with tf.name_scope(_SCOPE):
            for table, rate in zip(tables, rates, strict=True):
                for name, value in self._figures(table, gradients, rate, updated).items():
                    add_scalar(f"{PREFIX}/{table.name}/{name}", value)
        return tf.group(updated, *self._every_step)

    def _figures(
        self,
        table: StoredTable,
        gradients: Mapping[str, tf.Tensor],
        rate: tf.Tensor,
        updated: tf.Operation,
    ) -> dict[str, Any]:
        of_table = [ids for ids in self._ids if ids.table.name == table.name]
        rows, features = lookup.distinct(of_table, table.config.combiner)
        updates = update.of_batch(
            rows,
            features,
            [gradients[ids.feature.key] for ids in of_table],
            table.trained_by,
            table.config.dimension,
            self._num_cores,
        )
        with tf.control_dependencies([updated]):
            weights = storage.read_table(table.variables, rows)
        summed = tf.concat([one.gradients for one in updates], axis=0)
        count = tf.size(rows)
        every_row = table.trained_by.updates_untouched_rows
        figures = {
            "learning_rate": rate,
            "ids": tf.add_n([tf.size(ids.ids) for ids in of_table]),
            "distinct_ids": count,
            "rows_updated": table.config.vocabulary_size if every_row else count,
            "row_norm": _mean_norm(weights),
            "gradient_norm": _mean_norm(summed),
        }
        low, high = gradient_limits(table.trained_by, self._clipping_limit)
        if (low, high) != (-INFINITY, INFINITY):
            clipped = (summed < low) | (summed > high)
            figures["share_clipped"] = tf.math.divide_no_nan(
                tf.cast(tf.math.count_nonzero(clipped), tf.float32),
                tf.cast(tf.size(clipped), tf.float32),
            )
        if table.name in self._dropped:
            figures["dropped_ids"] = tf.add_n(self._dropped[table.name])
        return figures

    def _ids_from_before(self, ids: Ids, batch: Batch) -> Ids:
        if ids.feature.to_ids is None and not batch.dropped:
            # Native kernels read the input as it came: no step need compute anything else.
            keys = [ids.feature.key, ids.feature.weight_key]
            given = {key: inputs.as_tensor(batch.features[key]) for key in keys if key is not None}
            return inputs.read_feature(ids.table, ids.feature, self._from_before(given))
        names = ("ids", "segments", "weights", "batch")
        parts = self._from_before({name: getattr(ids, name) for name in names})
        return dataclasses.replace(ids, **parts)

    def _from_before(self, structure: Any) -> Any:
        assert self._next_step is not None
        carried = self._next_step.carried(structure)
        leaves = tf.nest.flatten(carried, expand_composites=True)
        self._every_step += [leaf.op for leaf in leaves if leaf is not None]
        return carried


def add_scalar(tag: str, value: Any) -> None:
    """Adds a scalar to the graph's summaries under exactly this tag, whatever scopes are open."""
    given = tf.cast(value, tf.float32)
    scalar = tf.raw_ops.ScalarSummary(tags=tag, values=given)
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SUMMARIES, scalar)


def add_loss(loss: tf.Tensor) -> None:
    """Adds the loss under the tag that evaluation uses, unless tensorflow-estimator does.

    In training, tensorflow-estimator uses `loss` too, but `loss_1` if an op or a scope of the model
    has that name. A summary of the program with that name stays the only one.
    """
    summaries = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARIES)
    own = any(summary.op.name == LOSS_METRIC_KEY for summary in summaries)
    free = loss.graph.unique_name(LOSS_METRIC_KEY, mark_as_used=False) == LOSS_METRIC_KEY
    if not own and not free:
        add_scalar(LOSS_METRIC_KEY, loss)


def _copied(ids: Ids) -> Ids:
    """Returns a copy of a feature's ids as int64, read after the control dependencies."""
    return dataclasses.replace(
        ids,
        ids=tf.identity(tf.cast(ids.ids, tf.int64)),
        segments=None if ids.segments is None else tf.identity(ids.segments),
        weights=None if ids.weights is None else tf.identity(ids.weights),
        batch=tf.identity(ids.batch),
    )


def _mean_norm(rows: tf.Tensor) -> tf.Tensor:
    norms = tf.norm(rows, axis=1)
    return tf.math.divide_no_nan(tf.reduce_sum(norms), tf.cast(tf.size(norms), tf.float32))
