"""Warns if labels [B] and predictions [B, 1] broadcast to a loss of all pairs [B, B].

An intended loss of pairs is not warned about: both its sides come from labels or neither does, both
have rank 2, or [B, 1] is made on the spot, by tf.expand_dims or [:, None].
"""

import logging
from typing import Any

import tensorflow as tf

from estimator_emb.engine.ordering import structure
from estimator_emb.guards.guard import Call, Guard
from estimator_emb.reporting import console, frames

_COMBINE = frozenset(
    ("Add", "AddV2", "Maximum", "Minimum", "Mul", "Pow", "RealDiv", "SquaredDifference", "Sub")
)
_SIZES = frozenset(("Rank", "Shape", "ShapeN", "Size"))
"""Ops with outputs that do not depend on the values of their inputs."""


class SpreadLabels(Guard):
    """Warns once about each op before the loss that broadcasts labels to all pairs of samples."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session and not call.exporting

    def complete(self, spec: Any) -> Any:
        losses = self.graph.losses_of(spec)
        if losses:
            self._warn(losses[0])
        return spec

    def _warn(self, loss: tf.Tensor) -> None:
        tensors = [
            (name, value) for name, value in self.graph.inputs() if isinstance(value, tf.Tensor)
        ]
        labels = {value.name for name, value in tensors if name.startswith("labels")}
        batch = {value.name for _, value in tensors}
        from_labels: set[tf.Operation] = set()
        from_batch: set[tf.Operation] = set()
        for op in structure.leading_to([loss.op], {}):
            given = list(op.inputs)
            of_labels = [one.name in labels or one.op in from_labels for one in given]
            of_batch = [one.name in batch or one.op in from_batch for one in given]
            if op.type in _COMBINE and all(of_batch) and any(of_labels) and not all(of_labels):
                label, other = given if of_labels[0] else given[::-1]
                if _spreads(label, other):
                    _say(op, label, other)
            if op.type in _SIZES:
                continue
            if any(of_labels):
                from_labels.add(op)
            if any(of_batch) or op.type == "IteratorGetNext":
                from_batch.add(op)


def _spreads(one: tf.Tensor, other: tf.Tensor) -> bool:
    flat, column = sorted((one, other), key=lambda tensor: tensor.shape.rank or 0)
    if flat.shape.rank != 1 or column.shape.rank != 2 or _is_made_in_place(column.op):
        return False
    (size,), (samples, width) = flat.shape.as_list(), column.shape.as_list()
    return width == 1 and size == samples != 1


def _is_made_in_place(op: tf.Operation) -> bool:
    return op.type == "ExpandDims" or (
        op.type == "StridedSlice" and op.get_attr("new_axis_mask") != 0
    )


def _say(op: tf.Operation, label: tf.Tensor, other: tf.Tensor) -> None:
    console.say_once(
        f"The loss of model_fn is of all pairs of samples: {op.type} of {label.shape}, from labels,"
        f" and {other.shape} gives {op.outputs[0].shape}. Give both one shape, as by "
        f"tf.reshape(labels, [-1, 1]) or tf.squeeze(logits, 1). {frames.made_by(op)}",
        level=logging.WARNING,
    )
