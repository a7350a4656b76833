"""Runs the lookup of the next step beside this step: `pipeline_execution_with_tensor_core=True`.

A session call of step N reads and looks up the batch of step N+1. Meanwhile the model computes with
the batch of step N, kept by the previous call. Step N updates the tables after that lookup. So the
lookup of step N+1 sees the updates up to step N-1: each update is delayed by a lookup. After a
call, the tables, and so a checkpoint, hold all updates so far.

Source: `pipeline_execution_with_tensor_core` of tpu_embedding_configuration.proto.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.graphs import SaveableObject, SaveSpec
from estimator_emb.engine import inputs
from estimator_emb.engine.lookup import Occurrences
from estimator_emb.engine.tables import placement

_KEPT = "estimator_emb_kept_for_next_step"
"""Graph collection of the ops that keep tensors for the next session call."""
KEPT_PREFIX = "estimator_emb_next_step_"
"""Prefix of the names under which tensors are kept, and saved in input checkpoints."""


class LookaheadBuffer(tf.compat.v1.train.SessionRunHook):
    """Keeps the tensors that a session call computes for the next session call.

    The process that runs the step keeps them, outside of variables and checkpoints. As a hook, the
    buffer computes the tensors of the first step when a session begins.

    Attributes:
      kernels: identifies the native kernels and their input format, because other kernels cannot
        read the tensors. '' for TensorFlow's ops.
    """

    def __init__(self) -> None:
        self._kept: list[tf.Operation] = []
        self._forget: list[tf.Operation] = []
        self.kernels = ""

    @property
    def kept(self) -> tf.Operation:
        """The op that keeps the tensors for the next step. Every step must run it."""
        return tf.group(*self._kept)

    def carried(self, structure: Any) -> Any:
        tensors = inputs.tensors_in(structure)
        if not tensors:
            return structure
        name = f"{KEPT_PREFIX}{self.kernels}{len(self._kept)}"
        dtypes = [tensor.dtype for tensor in tensors]
        with placement.on_cpu():  # Otherwise each device has its own stage.
            kept = tf.raw_ops.Stage(values=tensors, shared_name=name)
            with tf.control_dependencies(None):  # Clearing must not read a batch from the input.
                self._forget.append(tf.raw_ops.StageClear(dtypes=dtypes, shared_name=name))
            before = tf.raw_ops.Unstage(dtypes=dtypes, shared_name=name)
        tf.compat.v1.add_to_collection(_KEPT, kept)
        self._kept.append(kept)
        for present, carried in zip(tensors, before, strict=True):
            carried.set_shape(present.shape)
        return inputs.packed(structure, before)

    def carried_occurrences(self, occurrences: Occurrences) -> Occurrences:
        """Returns a feature's occurrences as the previous session call read them, for an update."""
        kept = {"positions": occurrences.positions, "gains": occurrences.gains}
        of_ids = {name: getattr(occurrences.ids, name) for name in ("ids", "segments", "batch")}
        kept, of_ids = self.carried([kept, of_ids])
        return dataclasses.replace(
            occurrences, ids=dataclasses.replace(occurrences.ids, **of_ids), **kept
        )

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        session.run(self._forget)
        session.run(self._kept)


def whole_step(updates: Sequence[tf.Operation], next_step: LookaheadBuffer | None) -> tf.Operation:
    """Returns the op that runs all `updates` and keeps the tensors for the next step."""
    return tf.group(*updates, *([next_step.kept] if next_step else []))


def kept_in_graph() -> list["KeptTensors"]:
    """Returns the tensors kept in the default graph, so that input checkpoints can save them."""
    return [KeptTensors(op) for op in tf.compat.v1.get_collection(_KEPT)]


class KeptTensors(SaveableObject):
    """The tensors that an op keeps for the next session call. They are saved between two calls.

    `op` reads a batch and keeps it. `forget` discards it.
    """

    def __init__(self, op: tf.Operation):
        self._dtypes = [tensor.dtype for tensor in op.inputs]
        self._stage = op.get_attr("shared_name").decode()
        with tf.device(op.device):
            self.forget = tf.raw_ops.StageClear(dtypes=self._dtypes, shared_name=self._stage)
            kept = tf.raw_ops.StagePeek(index=0, dtypes=self._dtypes, shared_name=self._stage)
        specs = [
            SaveSpec(tensor, "", f"{self._stage}/{number}", device=op.device)
            for number, tensor in enumerate(kept)
        ]
        super().__init__(op, specs, self._stage)

    def restore(self, restored_tensors: list[tf.Tensor], restored_shapes: Any) -> tf.Operation:
        with tf.device(self.op.device), tf.control_dependencies([self.forget]):
            return tf.raw_ops.Stage(values=restored_tensors, shared_name=self._stage)
