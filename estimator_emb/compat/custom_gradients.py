"""Frees custom gradients together with their graph, and lets them find local variables.

In a graph, `tf.custom_gradient` registers a gradient function for each op that it makes. The
function refers to tensors, and TensorFlow never unregisters it. So every graph with such an op
stays in memory until the process ends, and each training leaks a graph.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals import patches
from estimator_emb.compat.internals.graphs import custom_gradient, gradient_registry

_PREFIX = "CustomGradient-"
_KEPT = "_estimator_emb_custom_gradients"


def find_local_variables() -> None:
    """Makes custom gradients also find trainable local variables, until the process ends.

    TensorFlow searches only global variables. The helper variable must be local, because a
    program's `Saver` would save a global variable.
    """

    def make(find_global: Any) -> Any:
        def find(name: str) -> Any:
            for variable in tf.compat.v1.local_variables():
                if variable.trainable and variable.op.name == name:
                    return variable
            return find_global(name)

        return find

    patches.LASTING.wrap(custom_gradient, "get_variable_by_name", make)


@contextlib.contextmanager
def ending_with_graph() -> Iterator[None]:
    """Ties the default graph's custom gradients to the graph's lifetime, even after an error.

    The gradient functions move into the graph, and TensorFlow's registry finds them there.
    """
    graph = tf.compat.v1.get_default_graph()
    try:
        yield
    finally:
        registry = gradient_registry._registry
        kept: dict[str, Callable[..., Any]] = getattr(graph, _KEPT, {})
        setattr(graph, _KEPT, kept)
        names: list[str] = []
        for op in graph.get_operations():
            name = _custom_gradient(op)
            # An imported gradient belongs to the graph that created it, not to this graph.
            if name and name in registry and not isinstance(registry[name]["type"], _InGraph):
                kept[name] = registry[name]["type"]
                registry[name]["type"] = _InGraph(graph, name)
                names.append(name)
        if names:
            weakref.finalize(graph, _forget, names).atexit = False


def _custom_gradient(op: tf.Operation) -> str | None:
    if op.type != "IdentityN":
        return None
    try:
        name = op.get_attr("_gradient_op_type").decode()
    except ValueError:  # The op has no custom gradient.
        return None
    return name if name.startswith(_PREFIX) else None


def _forget(names: list[str]) -> None:
    for name in names:
        gradient_registry._registry.pop(name, None)


class _InGraph:
    """Calls a gradient function stored in a graph, without keeping the graph alive."""

    def __init__(self, graph: tf.Graph, name: str):
        self._graph = weakref.ref(graph)
        self._name = name

    def __call__(self, op: tf.Operation, *upstream: tf.Tensor) -> Any:
        return getattr(self._graph(), _KEPT)[self._name](op, *upstream)
