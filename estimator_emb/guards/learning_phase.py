"""Warns about Keras layers that a training calls without `training`.

In a graph such layers follow Keras's learning phase: inference, unless the program sets it. So
Dropout does nothing, and BatchNormalization uses its moving averages.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.engine.ordering import accesses
from estimator_emb.guards.checks import run_ops
from estimator_emb.guards.guard import Call, Guard
from estimator_emb.reporting import console, frames

_PHASE = re.compile(r"(.*/)?keras_learning_phase(_\d+)?")


class LearningPhase(Guard):
    """Finds a layer that follows the learning phase and has trained variables before it.

    A model without trained variables is a feature extractor, whose layers should not train.
    """

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_graph and call.method == "train"

    def after(self, spec: Any) -> Any:
        graph = tf.compat.v1.get_default_graph()
        phases = [
            op
            for op in graph.get_operations()
            if op.type == "PlaceholderWithDefault" and _PHASE.fullmatch(op.name)
        ]
        if not phases or getattr(spec, "train_op", None) is None or tf.distribute.has_strategy():
            return spec
        found = next(_following(phases, graph, run_ops.leading_to(spec.train_op)), None)
        if found is not None:
            console.say_once(
                "A Keras layer that is called without training= runs in inference mode, also in "
                "this training: Dropout does nothing, and BatchNormalization uses its moving "
                "averages. If the layer should train, pass it training=(mode == "
                f"tf.estimator.ModeKeys.TRAIN). {frames.made_by(found)}".rstrip(),
                self.call.model_dir,
                logging.WARNING,
            )
        return spec


def _following(phases: Sequence[tf.Operation], graph: tf.Graph, run: Any) -> Iterator[tf.Operation]:
    """Yields ops of `run` that depend on a phase, unless all variables before them are fixed."""
    written = {
        variable.name
        for variable in accesses.variables_of(graph)
        if not run.keys().isdisjoint(variable.writes)
    }
    of_phase = set(phases)
    before: dict[tf.Operation, set[bool]] = {}
    """Op -> whether the variables that it depends on are written, for each variable."""
    for op in run:
        inputs = [tensor.op for tensor in op.inputs]
        before[op] = set().union(*(before.get(one, ()) for one in inputs))
        if op.type in (*accesses.VARIABLES, "VarHandleOp"):
            before[op] = {op.name in written}
        elif not of_phase.isdisjoint(inputs):
            if all(one in of_phase or one.type == "Const" for one in inputs):
                of_phase.add(op)
            elif before[op] != {False}:
                yield op
