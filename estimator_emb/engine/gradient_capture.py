"""Captures the gradients of activations when the program's optimizer computes its own gradients."""

import logging
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from estimator_emb.engine.ordering import structure
from estimator_emb.engine.tables import helper_variable
from estimator_emb.reporting import console
from estimator_emb.reporting.console import logger

_Call = tuple[tf.Tensor, tf.Operation]
"""A gradient that reached an activation, and the op of the helper variable's gradient."""
_PASSING = frozenset(("Identity", "IdentityN", "CheckNumerics", "EnsureShape"))
"""Types of ops that pass a gradient on unchanged."""
_SUMMING = frozenset(("Add", "AddN", "AddV2"))
"""Types of ops that add up several gradients of a variable."""


class GradientCapture:
    """Captures the gradients of a step's activations when the program differentiates."""

    def __init__(self) -> None:
        self._helper = helper_variable.create()
        self._calls: list[tuple[str, list[_Call]]] = []
        self._writers: dict[tf.Operation, bool] = {}

    @property
    def gradients(self) -> dict[str, tf.Tensor]:
        """The last gradient of each activation, by feature key."""
        return {key: calls[-1][0] for key, calls in self._calls if calls}

    def through(self, key: str, activation: tf.Tensor) -> tf.Tensor:
        """Returns a feature's activation, made to depend on the helper variable.

        It may be called several times for a feature. The gradients of all returned tensors count.
        """
        calls: list[_Call] = []
        self._calls.append((key, calls))

        @tf.custom_gradient
        def intercept(activation: tf.Tensor, helper: tf.Tensor) -> Any:
            def gradient(upstream: tf.Tensor) -> tuple[None, tf.Tensor]:
                # In a model without its own variables, only this op makes the increment of the
                # global step wait for the gradient.
                with tf.control_dependencies([upstream]):
                    zero = tf.zeros_like(helper)
                calls.append((upstream, zero.op))
                return None, zero

            return tf.identity(activation), gradient

        return intercept(activation, self._helper.read_value())

    def wait_for(self, operations: list[tf.Operation]) -> None:
        """Makes the program's updates of its variables and global step wait for `operations`."""
        for _, calls in self._calls:
            for _, of_helper in calls:
                of_helper._add_control_inputs(operations)

    def applied(self, sent_to_cores: Iterable[tf.Tensor] = ()) -> dict[str, list[tf.Tensor]]:
        """Returns the gradients of each feature's tensors by feature key, to be summed.

        If a tensor has several gradients, only the gradient that the program trains by is returned.
        The others, computed for display or a penalty, update no variable. Raises RuntimeError if
        the program trains by several. An optimizer gets the tensors in `sent_to_cores` back as sums
        over all cores.
        """
        ends = {tensor.name for tensor in sent_to_cores}
        self._warn_of_changes(ends)
        chosen: dict[str, list[tf.Tensor]] = {}
        for key, calls in self._calls:
            if not calls:
                continue
            of_key = chosen.setdefault(key, [])
            of_key.append(calls[-1][0])
            if len(calls) == 1:
                continue
            found = [upstream for upstream, of_helper in calls if self._updates(of_helper, ends)]
            if len(found) > 1:
                raise RuntimeError(
                    f"Feature {key!r}: model_fn trains by {len(found)} gradients of its activation "
                    "in one step, from separate calls of minimize() or tf.gradients(), but only "
                    "one can update its table. Minimize the sum of the losses, or put "
                    "tf.stop_gradient() around the activation in all losses but one."
                )
            if found:
                of_key[-1] = found[0]
            else:
                logger.warning(
                    "Feature %r: model_fn computes %d gradients of its activation, but applies "
                    "none of them to a variable named %s. The last gradient updates the table.",
                    key,
                    len(calls),
                    helper_variable.HELPER_VARIABLE,
                )
        return chosen

    def _warn_of_changes(self, ends: set[str]) -> None:
        """Warns if a program changes all gradients or penalizes all variables: tables are exempt.

        In stock tensorflow-estimator off a TPU, tables are ordinary variables, and the change
        includes them. Here the helper variable stands for them.
        """
        added = {of_helper for _, calls in self._calls for _, of_helper in calls}
        waiting, changing, reaches = list(added), [], False
        while waiting:
            for tensor in waiting.pop().outputs:
                reaches = reaches or tensor.name in ends
                for reader in tensor.consumers():
                    if self._writes(reader) or _is_by_optimizer(reader):
                        reaches = True
                    elif reader.type not in _PASSING | _SUMMING:
                        changing.append(reader)
                    elif reader not in added:
                        added.add(reader)
                        waiting.append(reader)
        sums = [op for op in added if op.type in _SUMMING]
        if any(given.op not in added for op in sums for given in op.inputs):
            console.say_once(
                f"The loss has a penalty on {helper_variable.HELPER_VARIABLE}, which stands for "
                "embedding tables in trainable_variables(): the penalty reaches no table, as on a "
                "TPU. weight_decay_factor of the optimizer's parameters decays the rows that a "
                "step updates.",
                level=logging.WARNING,
            )
        change = None if reaches else next((o for o in changing if self._updates(o, ends)), None)
        if change is not None:
            console.say_once(
                f"model_fn changes gradients before its optimizer applies them (op {change.name}). "
                "As on a TPU, the gradients of embedding tables do not change. To limit each of "
                "their values, set the spec's clipping_limit. To scale them, set "
                "experimental_gradient_multiplier_fn. For any other change, put a "
                "tf.custom_gradient around the activations.",
                level=logging.WARNING,
            )

    def _writes(self, op: tf.Operation) -> bool:
        if op not in self._writers:  # Cached, because an op may sum the gradients of all features.
            handle = self._helper.handle.name
            self._writers[op] = any(given.name == handle for given in op.inputs)
        return self._writers[op]

    def _updates(self, of_helper: tf.Operation, ends: set[str]) -> bool:
        """Returns whether a gradient of the helper variable reaches its update, or `ends`."""
        readers = structure.reached(
            [of_helper], lambda op: [one for tensor in op.outputs for one in tensor.consumers()]
        )
        return any(
            self._writes(op) or any(tensor.name in ends for tensor in op.outputs) for op in readers
        )


def _is_by_optimizer(op: tf.Operation) -> bool:
    # Ops created in C++ have no traceback.
    return any(frame.name == "apply_gradients" for frame in getattr(op, "traceback", None) or ())
