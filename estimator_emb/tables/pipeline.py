# SPDX-License-Identifier: Apache-2.0
"""The lookup of the next step beside this step: `pipeline_execution_with_tensor_core=True`.

A session call of step N reads the batch of step N+1 and looks it up, while the model computes with
the batch of step N, which the call before has left. The tables are updated by step N after that
lookup. So the lookup of step N+1 sees the updates up to step N-1, each update is delayed by one
lookup, and what a call leaves in the tables, a checkpoint for one, is all updates so far.

Source: `pipeline_execution_with_tensor_core` of tpu_embedding_configuration.proto.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from estimator_emb.tables.lookup import Occurrences


class NextStep(tf.compat.v1.train.SessionRunHook):
    """Keeps what a session call computes for the next one.

    Tensors are kept where the process that runs the step is, in no variable and no checkpoint. As a
    hook, it computes the first step's when a session begins.
    """

    def __init__(self) -> None:
        self._kept: list[tf.Operation] = []
        self._forget: list[tf.Operation] = []

    @property
    def kept(self) -> tf.Operation:
        """To be run in every step: keeps its tensors for the next."""
        return tf.group(*self._kept)

    def late(self, structure: Any) -> Any:
        """`structure` of tensors and None, as the session call before computed it."""
        leaves = tf.nest.flatten(structure, expand_composites=True)
        tensors = [leaf for leaf in leaves if leaf is not None]
        if not tensors:
            return structure
        before = iter(self._through(tensors))
        late = [None if leaf is None else _as(leaf, next(before)) for leaf in leaves]
        return tf.nest.pack_sequence_as(structure, late, expand_composites=True)

    def _through(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        """Keeps `tensors`, and returns what was kept before."""
        name = f"estimator_emb_next_step_{len(self._kept)}"
        dtypes = [tensor.dtype for tensor in tensors]
        self._kept.append(tf.raw_ops.Stage(values=tensors, shared_name=name))
        self._forget.append(tf.raw_ops.StageClear(dtypes=dtypes, shared_name=name))
        return tf.raw_ops.Unstage(dtypes=dtypes, shared_name=name)

    def late_occurrences(self, one: Occurrences) -> Occurrences:
        """`late` of what an update needs to know of the ids of a feature."""
        kept = {"positions": one.positions, "gains": one.gains}
        of_ids = {name: getattr(one.ids, name) for name in ("ids", "segments", "batch")}
        kept, of_ids = self.late([kept, of_ids])
        return dataclasses.replace(one, ids=dataclasses.replace(one.ids, **of_ids), **kept)

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        session.run(self._forget)
        session.run(self._kept)


def with_one_more(input_fn_result: Any, batches: int) -> Any:
    """A dataset that ends some batches later, for the last step reads one that it does not use."""
    if not isinstance(input_fn_result, tf.data.Dataset):
        return input_fn_result
    return input_fn_result.concatenate(input_fn_result.take(batches))


def _as(present: tf.Tensor, late: tf.Tensor) -> tf.Tensor:
    late.set_shape(present.shape)
    return late
