# SPDX-License-Identifier: Apache-2.0
"""Bad ids that do not stop a program: they are left out, and counted."""

import dataclasses
import logging
from typing import Any

import tensorflow as tf

from estimator_emb.tables.checks import outside
from estimator_emb.tables.inputs import Ids, number_of_ops, ops_since
from estimator_emb.tables.storage import local_variable

logger = logging.getLogger("estimator_emb")


class DroppedIds(tf.compat.v1.train.SessionRunHook):
    """Leaves out ids outside [0, vocabulary size), and counts them by table.

    An id is left out with its weight, so that 'mean' and 'sqrtn' combine what remains; a sample
    without any other id, or the id's position in a sequence, is zero. No row is read or trained for
    it. The scalar `bad_ids/<table>` of the summaries is the number left out since this process
    began to run the graph; as a hook, an object says the numbers in the log at the end.

    Args:
      count: False only leaves ids out, as an exported model does.
    """

    def __init__(self, count: bool):
        self._count = count
        self._totals: dict[str, tf.Variable] = {}

    def drop(self, read: list[Ids]) -> list[Ids]:
        """`read` without its bad ids."""
        dropped = []
        for one in read:
            before = number_of_ops()
            kept = tf.where(tf.logical_not(outside(one.table, one.ids)))[:, 0]
            if self._count:
                # Also of those beyond the length of a sequence: none of them is an id.
                bad = outside(one.table, one.ids if one.uncut is None else one.uncut)
                with tf.control_dependencies([self._add(one.table.name, bad)]):
                    kept = tf.identity(kept)
            segments = tf.range(one.batch) if one.segments is None else one.segments
            left = dataclasses.replace(
                one,
                ids=tf.gather(one.ids, kept),
                segments=tf.gather(segments, kept),
                weights=None if one.weights is None else tf.gather(one.weights, kept),
                uncut=None,
            )
            if one.came is not None:
                made = one.came.made | ops_since(before)
                left = dataclasses.replace(left, came=dataclasses.replace(one.came, made=made))
            dropped.append(left)
        return dropped

    def _add(self, table: str, bad: tf.Tensor) -> tf.Operation:
        if table not in self._totals:
            zero = tf.constant(0, tf.int64)
            self._totals[table] = local_variable(f"estimator_emb_bad_ids/{table}", zero)
        return self._totals[table].assign_add(tf.math.count_nonzero(bad), read_value=False)

    def summarize(self, after: list[tf.Tensor]) -> None:
        """Adds the scalars to the graph's summaries, as of `after`, which `drop` has put out."""
        # A summary's tag begins with the name scope that it is made in.
        with tf.name_scope(""), tf.control_dependencies(after):
            for table, total in self._totals.items():
                tf.compat.v1.summary.scalar(f"bad_ids/{table}", total.read_value())

    def added_to(self, spec: Any) -> Any:
        """An `EstimatorSpec` whose hooks say the numbers at the end."""
        hooks = {"train": "training", "eval": "evaluation", "infer": "prediction"}[spec.mode]
        name = f"{hooks}_hooks"
        return spec._replace(**{name: (*(getattr(spec, name) or ()), self)})

    def end(self, session: tf.compat.v1.Session) -> None:
        totals = session.run(self._totals)
        found = ", ".join(f"{total:,} of table {table}" for table, total in totals.items() if total)
        if found:
            logger.warning("Ids outside their vocabulary were left out: %s.", found)
