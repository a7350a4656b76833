"""Finds the ops that a training runs."""

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.engine.ordering import structure
from estimator_emb.guards.guard import Call

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


def leading_to(*fetched: Any) -> structure.Ops:
    """Returns the ops that a session runs to fetch tensors, ops, variables or nests of them."""
    return structure.leading_to(dict.fromkeys(_ops(fetched)), {})


def training_ops(spec: Any, call: Call) -> structure.Ops | None:
    """Returns the ops that a training's session runs besides initializers.

    Returns None if they are unknown: a hook or listener of the program may run any op. `spec` is
    what model_fn returns, or the `EstimatorSpec` made from it.
    """
    chief_hooks = getattr(spec, "training_chief_hooks", None)
    hooks = [*(call.hooks or ()), *(spec.training_hooks or ()), *(chief_hooks or ())]
    if call.saving_listeners or not all(type(one).__module__.startswith(_KNOWN) for one in hooks):
        return None
    graph = tf.compat.v1.get_default_graph()
    if graph.get_collection(_keys.QUEUE_RUNNERS):
        return None
    fields = [spec.train_op, spec.loss, spec.predictions, getattr(spec, "host_call", None)]
    held = [*hooks, *([spec.scaffold] if getattr(spec, "scaffold", None) else [])]
    held += [graph.get_collection(name) for name in _COLLECTIONS]
    return leading_to(fields, [_attributes(one) for one in held])


def _attributes(owner: Any) -> Any:
    return owner if isinstance(owner, list) else vars(owner)


def _ops(value: Any) -> Iterator[tf.Operation]:
    if isinstance(value, tf.Operation):
        yield value
    elif isinstance(value, (tf.Tensor, tf.Variable)):
        yield value.op
    elif isinstance(value, Mapping):
        yield from _ops([*value.values()])
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _ops(one)
