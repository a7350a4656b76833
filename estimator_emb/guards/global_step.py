"""Finds a train_op that never increases the global step, or adds more than 1 per step."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.guards.checks import run_ops
from estimator_emb.guards.guard import Call, Guard, Runs
from estimator_emb.reporting import console, frames
from estimator_emb.reporting.console import logger

_ADDS = ("AssignAdd", "AssignAddVariableOp")
_READS = {"Identity", "IsVariableInitialized", "ReadVariableOp", "VarIsInitializedOp"}
_WITHOUT_COUNTERS = ("estimator_emb", "tensorflow", "tensorflow_estimator")
_HOW = (
    "Pass tf.compat.v1.train.get_global_step() as global_step to minimize or apply_gradients; give "
    "it to a Keras optimizer as its iterations."
)


class GlobalStep(Guard):
    """Warns about a global step that train_op never raises, or raises by more than 1.

    If each step adds more than 1, a hook ends the training once its last step is reached.
    """

    _raised = 0
    """The amount that a step adds to the global step, as far as it is known."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session and call.method == "train"

    def complete(self, spec: Any) -> Any:
        if tf.distribute.has_strategy():
            return spec  # Each replica has its own variable.
        counters = _counters()
        hooks = (*(self.call.hooks or ()), *spec.training_hooks, *spec.training_chief_hooks)
        if counters and self.call.runs in (Runs.PLAIN, Runs.LOCAL):
            run = run_ops.leading_to(spec.train_op)
            of_step = [op for op in counters if op in run]
            self._raised = _sum(of_step)
            if self._raised > 1:
                _say(self._raised, of_step, self.call.model_dir)
            if not of_step and (run_too := run_ops.training_ops(spec, self.call)) is not None:
                counters = [op for op in counters if op in run_too]
        if not counters:
            _warn_of_no_step(map(type, hooks))
        elif any(op.type.startswith("Assign") for op in counters):  # Not in a branch.
            console.counts_steps(tf.compat.v1.get_default_graph())
        return spec

    def hooks(self, spec: Any) -> Iterable[Any]:
        if self._raised > 1 and self.call.counts_steps:
            return [_StopsWhenReached(self.call.steps, self.call.max_steps)]
        return []


class _StopsWhenReached(tf.compat.v1.train.SessionRunHook):
    """Ends a training once its last step is reached.

    TensorFlow's hook assumes that a step adds 1 to the global step, so it may stop too late.
    """

    def __init__(self, steps: int | None, max_steps: int | None):
        self._steps = steps
        self._last = max_steps

    def begin(self) -> None:
        self._global_step = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._last is None:
            self._last = session.run(self._global_step) + self._steps

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_context.session.run(self._global_step) >= self._last:
            run_context.request_stop()


def _warn_of_no_step(hooks: Iterable[type]) -> None:
    """Warns that no op of the training changes the global step. A program's hook may change it."""
    others = [
        hook.__name__ for hook in hooks if hook.__module__.split(".")[0] not in _WITHOUT_COUNTERS
    ]
    unless = f", unless one of the hooks does ({', '.join(others)})" if others else ""
    logger.warning(
        "The train_op of model_fn does not increase the global step%s. Without that, steps and "
        "max_steps never end a training, and no checkpoint is saved by steps or at the end, so "
        "that the last trained weights are lost. %s",
        unless,
        _HOW,
    )


def _say(raised: int, counters: Sequence[Any], model_dir: str) -> None:
    lines = dict.fromkeys(frames.line_of_program(op) or op.name for op in counters)
    console.say_once(
        f"Each step of the training raises the global step by {raised}, so that steps, max_steps "
        f"and what else counts by it come {raised} times as soon. It is raised in "
        f"{'; '.join(lines)}. Pass global_step to one minimize or apply_gradients only.",
        model_dir,
        logging.WARNING,
    )


def _counters() -> list[Any]:
    """Returns the ops of the default graph that may change the global step."""
    step = tf.compat.v1.train.get_global_step()
    tensor = step.handle if hasattr(step, "handle") else step.op.outputs[0]
    initial = step.initializer
    return [op for op in tensor.consumers() if op is not initial and _may_assign(op)]


def _sum(counters: Sequence[Any]) -> int:
    added = [tf.get_static_value(op.inputs[1]) for op in counters if op.type in _ADDS]
    return sum(int(value) for value in added if value is not None)


def _may_assign(op: Any) -> bool:
    functions = [
        name for name in (attribute.func.name for attribute in op.node_def.attr.values()) if name
    ]
    if not functions:
        return op.type not in _READS
    for name in functions:
        definition = op.graph._get_function(name)
        nodes = getattr(getattr(definition, "definition", None), "node_def", None)
        # Functions that this function calls may assign too. They are not searched.
        if nodes is None or any(
            "Assign" in node.op or any(attribute.func.name for attribute in node.attr.values())
            for node in nodes
        ):
            return True
    return False
