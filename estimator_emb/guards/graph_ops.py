"""Searches a graph for all checks that read it, at most once as long as no op is added."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.engine.ordering import accesses, structure
from estimator_emb.guards.call import Call

_KNOWN = (
    "estimator_emb.",
    "tensorflow_estimator.",
    "tensorflow.python.training.basic_session_run_hooks",
)
"""Modules with hooks that only run ops stored in their attributes."""
_keys = tf.compat.v1.GraphKeys
_COLLECTIONS = (
    *(_keys.SUMMARIES, _keys.SUMMARY_OP, _keys.INIT_OP, _keys.LOCAL_INIT_OP, _keys.READY_OP),
    *(_keys.READY_FOR_LOCAL_INIT_OP, _keys.TABLE_INITIALIZERS),
)


class GraphOps:
    """Ops of the default graph, by type and by what needs them, as found by the first search.

    Attributes:
      before: op -> the ops that it waits for, for all ops of `leading_to`.
    """

    def __init__(self, call: Call):
        self._call = call
        self.forget()

    def forget(self) -> None:
        """Drops all that has been found."""
        self._version: int | None = None
        self._by_type: dict[str, list[tf.Operation]] = {}
        self.before: dict[tf.Operation, Sequence[tf.Operation]] = {}
        self._leading: dict[tuple[tf.Operation, ...], structure.Ops] = {}

    def by_type(self) -> Mapping[str, Sequence[tf.Operation]]:
        """Returns {type: the ops of this type, in graph order}."""
        graph = self._refresh()
        if not self._by_type:
            for op in graph.get_operations():
                self._by_type.setdefault(op.type, []).append(op)
        return self._by_type

    def typed(self, *types: str) -> list[tf.Operation]:
        """Returns the ops of these types, in graph order."""
        found = self.by_type()
        return sorted((op for kind in types for op in found.get(kind, ())), key=lambda op: op._id)

    def unwritten_by(self, run: structure.Ops) -> list[accesses.Variable]:
        """Returns the variables that no op of `run` writes."""
        return list(accesses.variables_of(tf.compat.v1.get_default_graph(), run))

    def leading_to(self, *fetched: Any) -> structure.Ops:
        """Returns the ops that a session runs to fetch tensors, ops, variables or nests of them."""
        self._refresh()
        roots = tuple(dict.fromkeys(_ops(fetched)))
        if roots not in self._leading:
            self._leading[roots] = structure.leading_to(roots, self.before)
        return self._leading[roots]

    def run_for(self, first: Any, *others: Any) -> structure.Ops:
        """Returns the ops that a session runs to fetch all of this, in any order.

        The ops of `first` are searched once for all `others`.
        """
        known = self.leading_to(first)

        def before(op: tf.Operation) -> Sequence[tf.Operation]:
            return () if op in known else [*(one.op for one in op.inputs), *op.control_inputs]

        return {**known, **structure.reached(_ops(others), before)}

    def run_in_sessions(self, spec: Any) -> structure.Ops | None:
        """Returns the ops that a training and its evaluations run besides initializers.

        Returns None if they are unknown: a training's hook or listener that the program makes may
        run any op. `spec` is what model_fn returns, or the `EstimatorSpec` made from it.
        """
        call = self._call
        chief_hooks = getattr(spec, "training_chief_hooks", None)
        hooks = [*(call.hooks or ()), *(spec.training_hooks or ()), *(chief_hooks or ())]
        known = all(type(one).__module__.startswith(_KNOWN) for one in hooks)
        graph = tf.compat.v1.get_default_graph()
        if call.saving_listeners or not known or graph.get_collection(_keys.QUEUE_RUNNERS):
            return None
        given = ("loss", "predictions", "host_call", "eval_metric_ops", "eval_metrics")
        fields = [getattr(spec, name, None) for name in given]
        held = [*hooks, *(spec.evaluation_hooks or ())]
        held += [spec.scaffold] if getattr(spec, "scaffold", None) else []
        collected = [graph.get_collection(name) for name in _COLLECTIONS]
        return self.run_for(spec.train_op, fields, [vars(one) for one in held], collected)

    def _refresh(self) -> tf.Graph:
        graph = tf.compat.v1.get_default_graph()
        if graph.version != self._version:
            self.forget()
            self._version = graph.version
        return graph


def _ops(value: Any) -> Iterator[tf.Operation]:
    if isinstance(value, str):  # A hook may have the name of a tensor.
        with contextlib.suppress(KeyError, ValueError):
            value = tf.compat.v1.get_default_graph().as_graph_element(value)
    if isinstance(value, tf.Operation):
        yield value
    elif isinstance(value, (tf.Tensor, tf.Variable)):
        op = getattr(value, "op", None)  # A hook may keep eager tensors, which have no op.
        if op is not None:
            yield op
    elif isinstance(value, Mapping):
        yield from _ops([*value.values()])
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _ops(one)
