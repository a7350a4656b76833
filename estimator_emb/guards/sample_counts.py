"""Explains errors that occur when features and labels differ in their number of samples."""

import contextlib
import copy
import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.engine.ordering import structure
from estimator_emb.guards.checks import batch_names
from estimator_emb.guards.guard import Call, GraphFacts, Guard, ModelBatch
from estimator_emb.reporting import error_notes


class SampleCounts(Guard):
    """Compares the numbers of samples while a graph is built and while it runs."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours

    def __init__(self, graph: GraphFacts):
        super().__init__(graph)
        self._sizes = _Sizes()

    def before(self, batch: ModelBatch) -> ModelBatch:
        """Adds ops that compare the sizes that are unknown while the graph is built.

        A batch with different sizes still trains.
        """
        if self.call.exporting or batch.samples is None:
            return batch
        return self._sizes.watching(batch)

    def around(self, batch: ModelBatch) -> contextlib.AbstractContextManager[Any]:
        return batch_names.compared(batch.features, batch.labels, batch.static_samples)

    def hooks(self, spec: Any) -> Iterable[Any]:
        # With a lookup ahead, the recorded sizes are from another step's batch.
        ahead = self.graph.lookup is not None and self.graph.lookup.step.next_step
        return [self._sizes] if self._sizes.watched and not ahead else []

    def explain(self, error: Exception) -> Exception | None:
        lines = self._sizes.explain_failed_step(error)
        if not lines:
            return None
        assert isinstance(error, tf.errors.OpError)
        if not error_notes.is_full():
            error_notes.shorten(error)
        error._message += lines
        return error


class _Sizes(tf.compat.v1.train.SessionRunHook):
    """Records wrong batch sizes of tensors, if sizes are known only when a step runs.

    As a hook it clears `found` before each step, so that an error reports only its own step.

    Attributes:
      watched: name of a graph tensor -> the name of the input in messages.
      found: name of an input with a wrong size in this step -> (its size, the expected size).
    """

    def __init__(self) -> None:
        self.watched: dict[str, str] = {}
        self.found: dict[str, tuple[int, int]] = {}
        self._warned: set[str] = set()
        self._graph: tf.Graph | None = None

    def before_run(self, run_context: Any) -> None:
        self.found = {}

    def note(self, names: list[str], sizes: np.ndarray, samples: np.ndarray) -> np.bool_:
        """Records which sizes differ from `samples`, for the error that they may cause."""
        differing = {
            name: (int(size), int(samples))
            for name, size in zip(names, sizes, strict=True)
            if size != samples
        }
        self.found = differing
        for name, (size, _) in differing.items():
            if size == 1 and name.startswith("labels") and name not in self._warned:
                self._warned.add(name)
                batch_names.warn_of_one(name, int(samples))
        return np.bool_(True)

    def watching(self, batch: ModelBatch) -> ModelBatch:
        """Adds ops that compare the sizes of the batch's tensors with `batch.samples`."""
        parts = {"features": batch.features, "labels": batch.labels}
        leaves = batch_names.named(parts)
        chosen = {id(value): (name, value) for name, value in leaves if _may_differ(value)}
        if not chosen:
            return batch
        names = [name for name, _ in chosen.values()]
        values = [value for _, value in chosen.values()]
        self._graph = values[0].graph
        with tf.name_scope("batch_sizes"), tf.device("/cpu:0"):
            sizes = _first_dimensions(values, batch.samples)
            samples = tf.cast(batch.samples, tf.int32)
            given = [sizes, samples]

            def note() -> tf.Tensor:
                return tf.numpy_function(lambda *found: self.note(names, *found), given, tf.bool)

            alike = tf.reduce_all(tf.equal(sizes, samples))
            compared = tf.cond(alike, lambda: tf.constant(True), note)
            with tf.control_dependencies([compared]):
                # A single op for all values is cheaper than an op per value.
                after = tf.raw_ops.IdentityN(input=values)
        replaced = dict(zip(chosen, after, strict=True))
        for name, tensor in zip(names, after, strict=True):
            self.watched[tensor.name] = name
        features, labels = _with(batch.features, replaced), _with(batch.labels, replaced)
        return dataclasses.replace(batch, features=features, labels=labels)

    def explain_failed_step(self, error: Exception) -> str:
        """Returns lines about the batch of a failed step, or '' if its sizes are not the cause."""
        found = {
            name: sizes for name, sizes in self.found.items() if batch_names.lacks_samples(*sizes)
        }
        if not found or not isinstance(error, tf.errors.InvalidArgumentError):
            return ""
        if not batch_names.OF_SHAPES.search(error.message):
            return ""
        if error.op is not None and error.op.graph is self._graph:
            ops = structure.reached([error.op], lambda op: [tensor.op for tensor in op.inputs])
            read = {self.watched.get(tensor.name) for op in ops for tensor in op.inputs}
            if read.isdisjoint(found):
                return ""
        lines = (batch_names.line(name, *sizes) for name, sizes in found.items())
        return f"{''.join(lines)} {batch_names.REMEDY}"


def _may_differ(value: Any) -> bool:
    if not isinstance(value, tf.Tensor) or value.dtype in (tf.resource, tf.variant):
        return False
    rank = value.shape.rank
    return rank is None or (rank > 0 and tf.compat.dimension_value(value.shape[0]) is None)


def _first_dimensions(values: list[tf.Tensor], samples: Any) -> tf.Tensor:
    """Returns the first dimension of each tensor, int32 [n]. Scalars get `samples`."""
    shapes = tf.shape_n(values)
    places, start = [], 0
    for number, value in enumerate(values):
        places.append(start)
        if value.shape.rank is None:
            first = tf.concat([shapes[number], [tf.cast(samples, tf.int32)]], axis=0)
            shapes[number] = first[:1]
            start += 1
        else:
            start += value.shape.rank
    return tf.gather(tf.concat(shapes, axis=0), places) if start > 1 else shapes[0]


def _with(structure: Any, replaced: dict[int, tf.Tensor]) -> Any:
    if isinstance(structure, dict):
        copied = copy.copy(structure)  # Its keys may be of types that `tf.nest` cannot sort.
        copied.update({key: _with(value, replaced) for key, value in structure.items()})
        return copied
    if isinstance(structure, (list, tuple)) and not hasattr(structure, "_fields"):
        return type(structure)(_with(value, replaced) for value in structure)
    return tf.nest.map_structure(lambda value: replaced.get(id(value), value), structure)
