# SPDX-License-Identifier: Apache-2.0
"""Updates that wait for one lookup: `pipeline_execution_with_tensor_core=True`.

The lookup of step N does not wait for the update of step N-1; that update runs right after it,
beside the model's own computation. So the lookup of step N sees the updates up to step N-2.
The lookup itself does not run ahead: that would take a batch read one step early, with all its
features and labels kept from one session call to the next.
Saving a checkpoint first runs the update that waits, so that every checkpoint holds all updates.

Source: `pipeline_execution_with_tensor_core` of tpu_embedding_configuration.proto.
"""

from collections.abc import Callable

import tensorflow as tf

from estimator_emb.tables.storage import local_variable
from estimator_emb.tables.update import RowUpdate

_COLLECTION = "estimator_emb_waiting_updates"


class WaitingUpdates:
    """The updates of one step, kept until the next.

    Args:
      apply: runs updates on a table, given its index, its learning rate and the updates.
    """

    def __init__(self, apply: Callable[[int, tf.Tensor, list[RowUpdate]], tf.Operation]):
        self._apply = apply
        self._any = _local("any", tf.constant(False))

    def exchange(
        self, updates: list[list[RowUpdate]], rates: list[tf.Tensor], after: list[tf.Tensor]
    ) -> tf.Operation:
        """Runs the updates of the step before, then keeps those of this one.

        Args:
          updates: of this step, by table.
          rates: the tables' learning rates in this step.
          after: what must have happened before any table changes: the lookups of this step.
        """
        kept = [
            (
                _local(f"{table}/rate", tf.constant(0.0)),
                [
                    RowUpdate(
                        _local(f"{table}/{turn}/rows", tf.zeros([0], one.rows.dtype)),
                        _local(
                            f"{table}/{turn}/gradients", tf.zeros([0, one.gradients.shape[1]])
                        ),
                    )
                    for turn, one in enumerate(of_table)
                ],
            )
            for table, of_table in enumerate(updates)
        ]

        def run() -> tf.Tensor:
            ran = [
                self._apply(
                    table,
                    rate.read_value(),
                    [RowUpdate(one.rows.read_value(), one.gradients.read_value()) for one in turns],
                )
                for table, (rate, turns) in enumerate(kept)
            ]
            with tf.control_dependencies(ran):
                return tf.constant(True)

        def run_if_any() -> tf.Tensor:
            return tf.cond(self._any.read_value(), run, lambda: tf.constant(False))

        with tf.control_dependencies([run_if_any()]):
            drain = self._any.assign(False, read_value=False)
        tf.compat.v1.add_to_collection(_COLLECTION, drain)

        with tf.control_dependencies(after):
            ran = run_if_any()
        with tf.control_dependencies([ran]):
            assigned = [self._any.assign(True, read_value=False)]
            for (rate, turns), new_rate, of_table in zip(kept, rates, updates, strict=True):
                assigned.append(rate.assign(new_rate, read_value=False))
                for place, one in zip(turns, of_table, strict=True):
                    assigned.append(place.rows.assign(one.rows, read_value=False))
                    assigned.append(place.gradients.assign(one.gradients, read_value=False))
        return tf.group(*assigned)


class DrainBeforeSaving(tf.compat.v1.train.CheckpointSaverListener):
    """Runs the update that waits before a checkpoint is written."""

    def before_save(self, session: tf.compat.v1.Session, global_step_value: int) -> None:
        session.run(session.graph.get_collection(_COLLECTION))


def _local(name: str, initial: tf.Tensor) -> tf.Variable:
    return local_variable(f"{_COLLECTION}/{name}", initial)
