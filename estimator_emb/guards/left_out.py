"""Checks what a training leaves out: penalties without a loss, and variables without a gradient."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.graphs import get_gradient_function
from estimator_emb.engine.ordering import structure
from estimator_emb.engine.tables.helper_variable import HELPER_VARIABLE
from estimator_emb.guards.call import Call
from estimator_emb.guards.events import Event, Facts, on
from estimator_emb.reporting import console, frames
from estimator_emb.reporting.text_columns import some_of

_STOPS = frozenset(("PreventGradient", "StopGradient"))
"""Ops by which a program stops gradients on purpose."""
_WITHOUT_VALUES = frozenset(
    ("OnesLike", "Rank", "Shape", "ShapeN", "Size", "VariableShape", "ZerosLike")
)
"""Ops with outputs that do not depend on the values of their inputs."""


@on(Event.MODEL_RETURNED, when=lambda call: call.in_graph and call.method == "train")
def left_out(facts: Facts, spec: Any) -> None:
    """Warns about regularization losses in no loss, and about variables without a gradient.

    A program may use only some of its penalties, stop gradients, or train only some variables. So
    it warns only if no penalty is used, and only about a variable whose ways to the loss all have
    an op without a gradient. With a hook of the program it cannot tell which variables train.
    """
    if getattr(spec, "train_op", None) is None or tf.distribute.has_strategy():
        return
    collected = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES)
    penalties = [one for one in collected if hasattr(one, "op") and not _is_zero(one.op)]
    if penalties and not any(map(_is_used, penalties)):
        _say(
            f"The regularization losses, such as {penalties[0].op.name!r}, are part of no loss, so "
            "the regularizers have no effect. Add "
            "tf.compat.v1.losses.get_regularization_loss() to the loss.",
            penalties[0].op,
            facts.call,
        )
    run = facts.ops.run_in_training(spec)
    if run is None:
        return
    scaffold = getattr(spec, "scaffold", None)
    restores = getattr(spec, "scaffold_fn", None) or (scaffold and scaffold.init_fn)
    if facts.call.warm_start is not None or restores:
        return
    written = facts.ops.written_by(run)
    unwritten = [
        one
        for one in tf.compat.v1.trainable_variables()
        if one.op.name not in written and HELPER_VARIABLE not in one.name and not _is_restored(one)
    ]
    if unwritten:
        _warn_of_blocked(unwritten, spec.loss.op, facts.call)


def _is_zero(penalty: tf.Operation) -> bool:
    """Returns whether a penalty is a product with 0: a regularizer that is switched off."""
    return any(tf.get_static_value(one) == 0 for one in penalty.inputs if one.shape.rank == 0)


def _is_used(penalty: Any) -> bool:
    """Returns whether other ops than summaries read a penalty."""
    if isinstance(penalty, tf.Tensor):
        return any("Summary" not in op.type for op in penalty.consumers())
    # The penalty of a variable is a function that makes its ops anew, in the same scope.
    scope, last = f"{penalty.op.name.rpartition('/')[0]}/", penalty.op._id
    ops = penalty.op.graph.get_operations()
    return any(op._id > last and op.name.startswith(scope) for op in ops)


def _is_restored(variable: Any) -> bool:
    """Returns whether the program gives the variable a value of a checkpoint."""
    before = structure.reached([variable.initializer], structure.before_of)
    return any(op.type in ("Restore", "RestoreV2") for op in before)


def _warn_of_blocked(unwritten: Sequence[Any], loss: tf.Operation, call: Call) -> None:
    blocking: structure.Ops = {}
    """Ops without a gradient, from which ways with a gradient lead to the loss."""

    def with_gradient(op: tf.Operation) -> Iterator[tf.Operation]:
        if op.type not in _STOPS and not _passes(op):
            blocking[op] = None
        elif op.type not in _STOPS:
            for given in op.inputs:
                if _may_have_gradient(given.dtype):
                    yield given.op
                else:
                    blocking[given.op] = None

    trained = structure.reached([loss], with_gradient)
    for op in blocking:
        behind = structure.reached([op], _by_value)
        found = [one for one in unwritten if one.op in behind and one.op not in trained]
        if found:
            _say(
                f"No gradient reaches {some_of([one.op.name for one in found])}, so the training "
                f"leaves {'it' if len(found) == 1 else 'them'} as initialized, although the loss "
                f"depends on {'it' if len(found) == 1 else 'them'}: the op {op.type} has no "
                "gradient. If that is intended, give trainable=False.",
                op,
                call,
            )
            return


def _passes(op: tf.Operation) -> bool:
    try:
        return not op.inputs or get_gradient_function(op) is not None
    except LookupError:
        return True  # An optimizer raises TensorFlow's error about it.


def _may_have_gradient(dtype: tf.DType) -> bool:
    return dtype.is_floating or dtype.is_complex or dtype in (tf.resource, tf.variant)


def _by_value(op: tf.Operation) -> list[tf.Operation]:
    if op.type in _STOPS or op.type in _WITHOUT_VALUES:
        return []
    return [given.op for given in op.inputs]


def _say(text: str, op: tf.Operation, call: Call) -> None:
    console.say_once(f"{text} {frames.made_by(op)}".rstrip(), call.model_dir, logging.WARNING)
