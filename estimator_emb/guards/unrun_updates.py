"""Warns about updates that no training step runs, such as batch normalization updates.

It warns only if no update of a variable can run. With a hook of the program it cannot tell.
"""

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.engine.ordering import accesses
from estimator_emb.guards.checks import run_ops
from estimator_emb.guards.guard import Call, Guard
from estimator_emb.reporting import console, frames
from estimator_emb.reporting.text_columns import some_of

_GIVEN = frozenset(("Placeholder", "PlaceholderWithDefault", "RestoreV2", "Restore"))
"""Ops that provide values from a feed or a saver. Their assignments run outside of steps."""
_keys = tf.compat.v1.GraphKeys


class UnrunUpdates(Guard):
    """Finds global variables with update ops that no step runs."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_graph and call.method == "train"

    def after(self, spec: Any) -> Any:
        graph = tf.compat.v1.get_default_graph()
        if getattr(spec, "train_op", None) is None or tf.distribute.has_strategy():
            return spec
        run = run_ops.training_ops(spec, self.call)
        if run is None:
            return spec
        scaffold = getattr(spec, "scaffold", None)
        sets_first = bool(getattr(spec, "scaffold_fn", None) or (scaffold and scaffold.init_fn))
        by_remedy: dict[str, list[tuple[str, tf.Operation]]] = {}
        for name, writes in _unrun(graph, run, sets_first):
            by_remedy.setdefault(_remedy(writes[0]), []).append((name, writes[0]))
        for remedy, found in by_remedy.items():
            names = some_of([name for name, _ in found])
            console.say_once(
                f"No step of this training updates {names}: nothing runs the ops that do, and "
                f"evaluate, predict and export use first values. {remedy} "
                f"{frames.made_by(found[0][1])}".rstrip(),
                self.call.model_dir,
                logging.WARNING,
            )
        return spec


def _unrun(
    graph: tf.Graph, run: Any, sets_first: bool
) -> Sequence[tuple[str, Sequence[tf.Operation]]]:
    """Returns the variables that no op of `run` writes, each with its write ops.

    With `sets_first`, plain assignments do not count: they may run before the first step.
    """
    step = tf.compat.v1.train.get_global_step()
    watched = {
        variable.op.name
        for variable in graph.get_collection(_keys.GLOBAL_VARIABLES)
        if variable is not step
    }
    initial = accesses.initial_writes()
    found = []
    for variable in accesses.variables_of(graph):
        writes = [
            op
            for op in variable.writes
            if op not in initial
            and op.name != f"{variable.name}/Assign"
            and not (sets_first and op.type in accesses.PLAIN)
        ]
        if variable.name in watched and writes and run.keys().isdisjoint(variable.writes):
            found.append((variable.name, writes))
    if not found:
        return []
    given = _given(graph)
    left = ((name, [op for op in writes if op not in given]) for name, writes in found)
    return [(name, writes) for name, writes in left if writes]


def _given(graph: tf.Graph) -> set[tf.Operation]:
    """Returns the ops that depend on a value from a saver or a feed of the program."""
    given: set[tf.Operation] = set()
    for op in graph.get_operations():
        if op.type == "Placeholder" and frames.is_ours(op):
            continue  # It stands for the activation of a table.
        if op.type in _GIVEN or any(tensor.op in given for tensor in op.inputs):
            given.add(op)
    return given


def _remedy(update: tf.Operation) -> str:
    if update in tf.compat.v1.get_collection(_keys.UPDATE_OPS):
        updates = "tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)"
        return f"Write train_op = tf.group(train_op, {updates})."
    if any(frames.is_in(one.filename, frames.KERAS) for one in frames.traceback_of(update)):
        return (
            "Write train_op = tf.group(train_op, model.get_updates_for(x)), with the x that the "
            "model was called with. A layer outside of a model has get_updates_for too."
        )
    return "Put them into train_op: tf.group(train_op, ...)."
