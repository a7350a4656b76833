# SPDX-License-Identifier: Apache-2.0
"""Takes the gradients of activations on their way to what a program's optimizer differentiates."""

from typing import Any

import tensorflow as tf

from estimator_emb.step import helper_variable


class Tap:
    """The gradients of the activations of one step, which appear as the program takes its own.

    Attributes:
      gradients: by feature key, the gradient that reached the activation.
    """

    def __init__(self) -> None:
        self.gradients: dict[str, tf.Tensor] = {}
        self._helper = helper_variable.read()
        self._of_helper: dict[str, tf.Operation] = {}

    def through(self, key: str, activation: tf.Tensor) -> tf.Tensor:
        """Returns the activation of a feature, made to depend on the helper variable."""

        @tf.custom_gradient
        def intercept(activation: tf.Tensor, helper: tf.Tensor) -> Any:
            def gradient(upstream: tf.Tensor) -> tuple[None, tf.Tensor]:
                self.gradients[key] = upstream
                # A model without variables of its own has only this to wait for before it
                # increments the global step.
                with tf.control_dependencies([upstream]):
                    zero = tf.zeros_like(helper)
                self._of_helper[key] = zero.op
                return None, zero

            return tf.identity(activation), gradient

        return intercept(activation, self._helper)

    def wait_for(self, operations: list[tf.Operation]) -> None:
        """Makes the program's update of its variables, and of the global step, wait."""
        for gradient in self._of_helper.values():
            gradient._add_control_inputs(operations)
