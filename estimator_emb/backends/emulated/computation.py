"""Records the ops that model_fn makes, and refuses reads from outside.

On a TPU, these ops run in a loop, and the host cannot read their tensors. Off a TPU, any op could
read them. So reads are refused in scaffold_fn, hooks, summaries, and the fetches and feeds of a
session.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.backends import tpu_checks
from estimator_emb.catalog.limits import refuse
from estimator_emb.compat.internals.tpu_estimator import CapturingContext


class Computation:
    """The ops in the default graph that belong to an emulated TPU."""

    def __init__(self) -> None:
        self._graph = tf.compat.v1.get_default_graph()
        self._ops: dict[str, tf.Operation] = {}

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Returns a context that records the ops made inside as ops of the TPU.

        It skips ops in `tf.init_scope` or `tf.control_dependencies(None)`, because a TPU runs them
        outside of its loop too. It also skips the ops of variables: any op may read a variable.
        """
        before = len(self._graph.get_operations())
        # An empty group adds no dependency, and contains the same ops as a loop would.
        inside = self._graph.control_dependencies([])
        with inside:
            yield
        for op in self._graph.get_operations()[before:]:
            if "TPU" in op.device:
                op._set_device("")  # A model that spans cores names TPU devices.
            if inside.op_in_group(op):
                self.add(op)

    def add(self, op: tf.Operation) -> None:
        if op.type not in ("VarHandleOp", "ReadVariableOp") and "/Initializer/" not in op.name:
            self._ops[op.name] = op

    def check(self) -> None:
        """Refuses summaries of model_fn, and ops that cannot run in a TPU's loop."""
        for summary in self._graph.get_collection(tf.compat.v1.GraphKeys.SUMMARIES):
            if summary.op.name in self._ops:
                refuse("summary", name=summary.op.name)
        tpu_checks.check_ops(self._ops.values())

    def readable(self, structure: Any) -> Any:
        """Returns the structure with copies of the TPU's tensors that a session may fetch."""
        if not any(self._has(leaf) for leaf in tf.nest.flatten(structure)):
            return structure
        return tf.nest.map_structure(
            lambda leaf: tf.identity(leaf, "emulated_tpu/outfeed") if self._has(leaf) else leaf,
            structure,
        )

    def close(self) -> None:
        for op in self._ops.values():
            self._graph.prevent_fetching(op)
            for tensor in op.outputs:
                self._graph.prevent_feeding(tensor)

    def outside(self, message: str) -> contextlib.AbstractContextManager:
        """Returns a context that refuses ops that read the TPU's tensors, with `message`."""
        context: contextlib.AbstractContextManager = _Outside(message, self._ops)
        return context

    def guarded(self, hooks: Iterable[Any]) -> list[Any]:
        """Returns the hooks, and refuses ops in their `begin` that read the TPU's tensors."""
        hooks = list(hooks)
        if not hooks:
            return hooks
        outside = self.outside("Inside a hook of model_fn")
        after = functools.partial(outside.__exit__, None, None, None)
        return [_AtBegin(outside.__enter__), *hooks, _AtBegin(after)]

    def has(self, op: tf.Operation) -> bool:
        return op.name in self._ops

    def _has(self, leaf: Any) -> bool:
        return tf.is_tensor(leaf) and hasattr(leaf, "op") and self.has(leaf.op)

    def checked_scaffold(self, scaffold: Any) -> Any:
        """Returns the `Scaffold`, and also checks the ops that its `finalize` makes."""
        finalize = scaffold.finalize

        def checked() -> Any:
            with self.outside("Inside Scaffold.finalize"):
                return finalize()

        scaffold.finalize = checked
        return scaffold


class _Outside(CapturingContext):
    def __init__(self, message: str, of_core: Any):
        super().__init__(message)
        self._of_core = of_core

    def AddOp(self, op: tf.Operation) -> None:  # noqa: N802
        for tensor in op.inputs:
            if tensor.op.name in self._of_core:
                refuse("read from outside", place=self._message, op=op, tensor=tensor)


class _AtBegin(tf.compat.v1.train.SessionRunHook):
    def __init__(self, call: Callable[[], Any]):
        self._call = call

    def begin(self) -> None:
        self._call()
