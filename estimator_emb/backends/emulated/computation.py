"""The ops that model_fn makes, which nothing outside may read.

On a TPU they are in a loop that the host does not see into. Here they are ops like any others, and
each way to read them is refused: ops of scaffold_fn and of hooks, fetches and feeds of a session,
and summaries.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.tpu_estimator import CapturingContext
from estimator_emb.guards.session_errors import HOW_TO_OUTFEED


class Computation:
    """The computation of an emulated TPU in the default graph."""

    def __init__(self) -> None:
        self._graph = tf.compat.v1.get_default_graph()
        self._ops: dict[str, tf.Operation] = {}

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Takes the ops that are made inside for the TPU's.

        Those of `tf.init_scope` and of `tf.control_dependencies(None)` are outside of a loop on a
        TPU too, and a variable may be read by anyone.
        """
        before = len(self._graph.get_operations())
        # It adds no dependency, and sees the ops that a loop around them would see.
        inside = self._graph.control_dependencies([])
        with inside:
            yield
        for op in self._graph.get_operations()[before:]:
            if "TPU" in op.device:
                op._set_device("")  # A core of a model that spans several.
            if inside.op_in_group(op) and not _is_of_variable(op):
                self._ops[op.name] = op

    def check_summaries(self) -> None:
        for summary in self._graph.get_collection(tf.compat.v1.GraphKeys.SUMMARIES):
            if summary.op.name in self._ops:
                raise ValueError(
                    f"Cannot use {summary.op.name!r} as input to 'Merge/MergeSummary' because "
                    f"{summary.op.name!r} is in a while loop: model_fn makes this summary on the "
                    f"TPU.{HOW_TO_OUTFEED}"
                )

    def check_ops(self) -> None:
        """Refuses ops of model_fn that a TPU's loop cannot hold.

        Raises ValueError for a lookup table, and NotImplementedError for a write of a variable that
        is not a resource.
        """
        for name, op in self._ops.items():
            if op.type.startswith(("InitializeTable", "LookupTableExport", "LookupTableImport")):
                raise ValueError(
                    f"model_fn makes a lookup table on the TPU: {name!r} must be from the same "
                    "graph as 'init_all_tables' and the saver, which run on the host. Look up in "
                    "input_fn, and return what was found as a feature."
                )
            if any(tensor.dtype._is_ref_dtype for tensor in op.inputs):
                raise NotImplementedError(
                    "Non-resource Variables are not supported inside TPU computations (operator "
                    f"name: {name}). Make the variable of {op.inputs[0].op.name!r} without "
                    "use_resource=False."
                )

    def readable(self, structure: Any) -> Any:
        """Returns a structure that a session may fetch, with copies of the TPU's tensors."""
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
        """Makes a context in which ops that read the TPU's tensors are refused with `message`."""
        context: contextlib.AbstractContextManager = _Outside(message, self._ops)
        return context

    def guarded(self, hooks: Iterable[Any]) -> list[Any]:
        """Returns the program's hooks, whose `begin` may make no op that reads the TPU's."""
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
        """Returns a `Scaffold` whose own ops, made when a session begins, are checked too."""
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
                raise ValueError(
                    f"{self._message}: Op {op} depends on TPU computation {tensor}, which is not "
                    f"allowed. Cannot use {tensor.op.name!r} as input to {op.name!r} because "
                    f"{tensor.op.name!r} is in a while loop.{HOW_TO_OUTFEED}"
                )


class _AtBegin(tf.compat.v1.train.SessionRunHook):
    def __init__(self, call: Callable[[], Any]):
        self._call = call

    def begin(self) -> None:
        self._call()


def _is_of_variable(op: tf.Operation) -> bool:
    return op.type in ("VarHandleOp", "ReadVariableOp") or "/Initializer/" in op.name
