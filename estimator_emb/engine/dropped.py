"""Drops and counts bad ids, instead of stopping the program."""

import dataclasses

import tensorflow as tf

from estimator_emb.engine.inputs import Ids
from estimator_emb.reporting.console import logger
from estimator_emb.spec.resolved import Table


class DroppedIds(tf.compat.v1.train.SessionRunHook):
    """A session hook that drops ids outside [0, vocabulary size), and counts them by table.

    An id is dropped with its weight, so that 'mean' and 'sqrtn' combine what remains. A sample
    without any other id gets a zero activation, and so does the id's position in a sequence. No row
    is read or trained for the id. The summary `bad_ids/<table>` counts the ids dropped since this
    process began to run the graph. The log shows the counts at the end. `count` is False for an
    exported model, which drops ids without counting them. `of_batch` maps a table to the number of
    ids dropped from each of its features in the batch, int64 scalars.
    """

    def __init__(self, count: bool):
        self._count = count
        self._totals: dict[str, tf.Variable] = {}
        self.of_batch: dict[str, list[tf.Tensor]] = {}

    def drop(self, ids: Ids) -> Ids:
        kept = tf.where(tf.logical_not(_outside(ids.table, ids.ids)))[:, 0]
        if self._count:
            # Ids beyond the length of a sequence count too, although no lookup reads them.
            bad = _outside(ids.table, ids.ids if ids.uncut is None else ids.uncut)
            with tf.control_dependencies([self._add(ids.table.name, bad)]):
                kept = tf.identity(kept)
        segments = tf.range(ids.batch) if ids.segments is None else ids.segments
        return dataclasses.replace(
            ids,
            ids=tf.gather(ids.ids, kept),
            segments=tf.gather(segments, kept),
            weights=None if ids.weights is None else tf.gather(ids.weights, kept),
            uncut=None,
        )

    def _add(self, table: str, bad: tf.Tensor) -> tf.Operation:
        if table not in self._totals:
            # On the device of ordinary ops: workers would share a variable on a parameter server.
            with tf.device(tf.no_op().device):
                self._totals[table] = tf.compat.v1.Variable(
                    tf.constant(0, tf.int64),
                    name=f"estimator_emb_bad_ids/{table}",
                    trainable=False,
                    collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
                    use_resource=True,
                )
        count = tf.math.count_nonzero(bad)
        self.of_batch.setdefault(table, []).append(count)
        return self._totals[table].assign_add(count, read_value=False)

    def summarize(self, after: list[tf.Tensor]) -> None:
        """Adds the counts to the graph's summaries. They are read after the tensors in `after`."""
        # An open name scope would become a part of the summary's tag.
        with tf.name_scope(""), tf.control_dependencies(after):
            for table, total in self._totals.items():
                tf.compat.v1.summary.scalar(f"bad_ids/{table}", total.read_value())

    def end(self, session: tf.compat.v1.Session) -> None:
        totals = session.run(self._totals)
        counts = [f"{total:,} of table {table}" for table, total in totals.items() if total]
        if counts:
            logger.warning("Ids outside their vocabulary were left out: %s.", ", ".join(counts))


def _outside(table: Table, ids: tf.Tensor) -> tf.Tensor:
    """Returns bool [n]: whether each id is outside [0, vocabulary size)."""
    size = table.config.vocabulary_size
    if size > ids.dtype.max:
        return ids < 0
    return (ids < 0) | (ids >= tf.constant(size, ids.dtype))
