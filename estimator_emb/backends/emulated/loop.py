"""Runs the loop of an emulated TPU. To hooks, a loop looks like a single session call."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.tpu_estimator import (
    OutfeedHostCallHook,
    create_or_get_iterations_per_loop,
)
from estimator_emb.guards import input_fn, numbers, stopping


class LoopHook(OutfeedHostCallHook):
    """Runs all steps of a loop except the last. The session call itself runs the last step.

    tensorflow-estimator's hooks set the number of steps in its variable `iterations_per_loop`. This
    hook must be last in the list, so that `before_run` of the other hooks runs before the loop.

    Args:
      step: the op that runs a step.
      host_ops: the ops of `host_call`.
      every_n_steps: n, if `host_ops` run after the steps 0, n, 2n, ... of a loop.
      first: an op that runs before each loop.
    """

    def __init__(
        self,
        step: tf.Operation,
        host_ops: Sequence[Any] = (),
        every_n_steps: int = 1,
        first: tf.Operation | None = None,
    ):
        super().__init__(host_ops)
        self._step = step
        self._first = first
        self._host_ops = list(host_ops)
        self._every_n_steps = every_n_steps
        self._made = 0
        """Completed steps of all loops."""
        self._in_loop = False

    def begin(self) -> None:
        super().begin()
        self._iterations = create_or_get_iterations_per_loop()
        self._looks = tf.compat.v1.get_collection(numbers.EACH_STEP)

    def before_run(self, run_context: Any) -> tf.compat.v1.train.SessionRunArgs:
        iterations = run_context.session.run(self._iterations)
        self._in_loop = True
        if self._first is not None:
            run_context.session.run(self._first)
        index = 0
        while index < iterations - 1 and not stopping.requested():
            run_context.session.run([self._step, self._looks, self._after_step(index)])
            index += 1
            self._made += 1
        return tf.compat.v1.train.SessionRunArgs(self._after_step(index))

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._made += 1
        self._in_loop = False

    def end(self, session: tf.compat.v1.Session) -> None:
        super().end(session)
        # A monitored session treats the end of its input as a regular stop, even within a loop.
        # If there was no step, `input_fn` reports an empty input.
        if self._in_loop and self._made:
            raise input_fn.InputEndedError(
                f"The input ended after {self._made} steps. As on a TPU, input_fn must yield a "
                "batch for every step asked for; repeat() its dataset, or ask for fewer steps."
            )

    def _after_step(self, index: int) -> list[Any]:
        return self._host_ops if index % self._every_n_steps == 0 else []
