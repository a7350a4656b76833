"""Finds a train_op that does not count its steps."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from estimator_emb.guards.guard import Call, Guard
from estimator_emb.reporting import console
from estimator_emb.reporting.console import logger

_READS = {"Identity", "IsVariableInitialized", "ReadVariableOp", "VarIsInitializedOp"}
_WITHOUT_COUNTERS = ("estimator_emb", "tensorflow", "tensorflow_estimator")


class GlobalStep(Guard):
    """Raises ValueError where such a training would never end; else warns."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours and call.training

    def complete(self, spec: Any) -> Any:
        hooks = (*(self.call.hooks or ()), *spec.training_hooks, *spec.training_chief_hooks)
        _check(self.call.counts_steps, map(type, hooks))
        return spec


def _check(must_count: bool, hooks: Iterable[type]) -> None:
    """Warns if nothing in the default graph changes the global step.

    With `must_count`, where training would never end, it raises ValueError instead, unless one of
    the `hooks`, classes, is the program's own and may change the step.
    """
    if _has_counter():
        console.counts_steps(tf.compat.v1.get_default_graph())
        return
    others = [
        hook.__name__ for hook in hooks if hook.__module__.split(".")[0] not in _WITHOUT_COUNTERS
    ]
    unless = f", unless one of the hooks does ({', '.join(others)})" if others else ""
    wrong = (
        "The train_op of model_fn does not increase the global step, so that training would never "
        f"end{unless}: the global step (tf.train.get_global_step) has not been increased. Pass "
        "tf.compat.v1.train.get_global_step() as global_step to minimize or apply_gradients; give "
        "it to a Keras optimizer as its iterations."
    )
    if must_count and not others:
        raise ValueError(wrong)
    logger.warning(wrong)


def _has_counter() -> bool:
    step = tf.compat.v1.train.get_global_step()
    try:
        tensor = step.handle if hasattr(step, "handle") else step.op.outputs[0]
        initial = step.initializer
        return any(op is not initial and _may_assign(op) for op in tensor.consumers())
    except AttributeError:
        return True  # A variable of a distribution strategy.


def _may_assign(op: Any) -> bool:
    functions = [
        name for name in (attribute.func.name for attribute in op.node_def.attr.values()) if name
    ]
    if not functions:
        return op.type not in _READS
    for name in functions:
        definition = op.graph._get_function(name)
        nodes = getattr(getattr(definition, "definition", None), "node_def", None)
        # Functions that it calls may assign too; they are not searched.
        if nodes is None or any(
            "Assign" in node.op or any(attribute.func.name for attribute in node.attr.values())
            for node in nodes
        ):
            return True
    return False
