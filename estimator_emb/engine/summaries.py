"""Shows each table in TensorBoard while it trains, unless `TPUConfig(table_summaries=False)`.

The statistics of a step are scalar summaries. tensorflow-estimator's hook fetches them in every
`save_summary_steps`-th step, and other steps do not compute them. Whichever kernels train the
tables, TensorFlow's ops compute the statistics from the batch's ids and the gradients of
activations. They read rows after the update. Similar tables share a function of these ops, so that
each table adds only a single op to a graph.
"""

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.engine import inputs, lookup, update
from estimator_emb.engine.dropped import DroppedIds
from estimator_emb.engine.inputs import Batch, Ids, Source
from estimator_emb.engine.pipelining import LookaheadBuffer
from estimator_emb.engine.tables import storage
from estimator_emb.engine.tables.storage import StoredTable
from estimator_emb.optimizers import gradient_limits

PREFIX = "embedding"
"""Prefix of a table's summary tags: `embedding/<table>/<figure>`."""

_SCOPE = "embedding_summaries"
_PARTS = ("ids", "segments", "weights", "batch", "lengths", "uncut", "fit", "places")
"""The attributes of `Ids` that are tensors or consist of tensors."""


class TableSummaries:
    """Adds the statistics of all tables to a graph's summaries.

    Args:
      batch: the batch as it was looked up.
      next_step: keeps the batch if the update runs in the next session call; else None.
    """

    def __init__(
        self,
        batch: Batch,
        next_step: LookaheadBuffer | None,
        dropped: DroppedIds | None,
        num_cores: int,
    ):
        self._num_cores = num_cores
        self._dropped: Any = dict(dropped.of_batch) if dropped else {}
        self._functions: dict[Any, Any] = {}
        self._every_step: list[tf.Operation] = []
        """Ops that take the tensors kept by the previous session call. Every step must run them."""
        all_given = list(map(_given, batch.sources))
        if next_step is not None:
            with tf.name_scope(_SCOPE):
                all_given = [next_step.carried(given) for given in all_given]
                self._dropped = next_step.carried(self._dropped)
            self._every_step = [leaf.op for leaf in inputs.tensors_in([all_given, self._dropped])]
        self._of_table: dict[str, list[tuple[Source, Any]]] = collections.defaultdict(list)
        for source, given in zip(batch.sources, all_given, strict=True):
            self._of_table[source.table.name].append((source, given))

    def added_to(
        self,
        updated: tf.Operation,
        tables: Sequence[StoredTable],
        gradients: Mapping[str, tf.Tensor],
        rates: Sequence[tf.Tensor],
    ) -> tf.Operation:
        """Adds the scalars to the graph's summaries, and returns the op that every step must run.

        `updated` is the update of all tables. `gradients` maps feature keys to the activation
        gradients that the update takes. `rates` has the rate of each table.
        """
        tags: list[str] = []
        values: list[tf.Tensor] = []
        with tf.name_scope(_SCOPE):
            for table, rate in zip(tables, rates, strict=True):
                with tf.control_dependencies([updated]):  # By then, the batch was checked.
                    figures = self._figures(table, gradients)
                    weights = storage.read_table(table.variables, figures.pop("rows"))
                [figures["row_norm"]] = self._call("norm", _mean_norm, [weights])
                figures["learning_rate"] = rate
                if table.name in self._dropped:
                    count = tf.add_n(self._dropped[table.name])
                    figures["dropped_ids"] = tf.cast(count, tf.float32)
                tags += [f"{PREFIX}/{table.name}/{name}" for name in figures]
                values += figures.values()
            add_scalars(tags, values)
        return tf.group(updated, *self._every_step)

    def _figures(
        self, table: StoredTable, gradients: Mapping[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Returns the statistics of a table in the batch, and its distinct `rows`."""
        of_table = self._of_table[table.name]
        sources = [source for source, _ in of_table]
        structure = [
            [given for _, given in of_table],
            [gradients[source.feature.key] for source in sources],
        ]
        every_row = table.trained_by.updates_untouched_rows
        limits = gradient_limits(table.trained_by, table.clipping_limit)
        limited = limits != (-math.inf, math.inf)

        def figures(*tensors: tf.Tensor) -> list[tf.Tensor]:
            given, of_activations = inputs.packed(structure, tensors)
            read = [
                dataclasses.replace(ids, ids=tf.cast(ids.ids, tf.int64))
                for ids in map(_ids_of, sources, given)
            ]
            rows, features = lookup.distinct(read, table.config.combiner)
            updates = update.row_updates(table, rows, features, of_activations, self._num_cores)
            summed = tf.concat([one.gradients for one in updates], axis=0)
            count = tf.size(rows)
            found = [
                tf.add_n([tf.size(ids.ids) for ids in read]),
                count,
                table.config.vocabulary_size if every_row else count,
                _mean_norm(summed),
            ]
            if limited:
                clipped = (summed < limits[0]) | (summed > limits[1])
                found.append(_mean(tf.cast(clipped, tf.float32)))
            return [rows, *(tf.cast(value, tf.float32) for value in found)]

        alike = (
            table.config.combiner,
            table.config.vocabulary_size if every_row else None,
            table.trained_by.use_gradient_accumulation,
            limits,
            [(one.feature.max_sequence_length, one.looked_up) for one in sources],
            [type(leaf) for leaf in tf.nest.flatten(structure)],
        )
        names = ["rows", "ids", "distinct_ids", "rows_updated", "gradient_norm", "share_clipped"]
        results = self._call(repr(alike), figures, inputs.tensors_in(structure))
        return dict(zip(names, results, strict=False))

    def _call(self, alike: str, compute: Any, given: list[tf.Tensor]) -> Any:
        """Returns the results of `compute`, a function shared by all calls that are `alike`."""
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in given]
        key = (alike, repr(specs))
        if key not in self._functions:
            # Without inlining, TensorFlow prepares the function once, not for every table.
            function = tf.function(
                compute, autograph=False, experimental_attributes={"_noinline": True}
            )
            self._functions[key] = function.get_concrete_function(*specs)
        found = self._functions[key]
        dtypes = [output.dtype for output in found.outputs]
        return tf.raw_ops.PartitionedCall(args=given, Tout=dtypes, f=found)


def _given(source: Source) -> Any:
    """Returns the tensors, or None, from which `_ids_of` computes the ids of a feature."""
    if source.value.dtype.is_integer and source.drop is None:
        return source.value, source.weights, source.places
    return {name: getattr(source.ids, name) for name in _PARTS}


def _ids_of(source: Source, given: Any) -> Ids:
    if isinstance(given, dict):
        return dataclasses.replace(source.ids, **given, source=None)
    value, weights, places = given
    return dataclasses.replace(source, value=value, weights=weights, drop=None, places=places).ids


def add_scalars(tags: Sequence[str], values: Sequence[tf.Tensor]) -> None:
    """Adds float32 scalars to the graph's summaries under exactly these tags."""
    summary = tf.raw_ops.ScalarSummary(tags=list(tags), values=tf.stack(values))
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SUMMARIES, summary)


def _mean_norm(rows: tf.Tensor) -> tf.Tensor:
    return _mean(tf.norm(rows, axis=1))


def _mean(values: tf.Tensor) -> tf.Tensor:
    return tf.math.divide_no_nan(tf.reduce_sum(values), tf.cast(tf.size(values), tf.float32))
