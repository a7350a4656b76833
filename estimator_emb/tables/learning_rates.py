# SPDX-License-Identifier: Apache-2.0
"""The learning rate of each table in a step."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_emb.config import Table
from estimator_emb.optimizers import OptimizationParameters


class LearningRates:
    """The rate of each table in this step; tables that share a function share its value.

    A table's own rate or function of the step comes before the rate of its optimizer, which is a
    number or, in the TF2 vocabulary, a function without arguments.

    Args:
      step: int64 scalar, the global step before it is incremented.
    """

    def __init__(self, step: tf.Tensor):
        self._step = step
        self._of_function: dict[Any, tf.Tensor] = {}

    def of(self, table: Table, parameters: OptimizationParameters) -> tf.Tensor:
        """float32 scalar."""
        config = table.config
        if config.learning_rate_fn is not None:
            return self._value(config.learning_rate_fn, self._step)
        if config.learning_rate is not None:
            return tf.constant(config.learning_rate, tf.float32)
        if callable(parameters.learning_rate):
            return self._value(parameters.learning_rate)
        return tf.constant(parameters.learning_rate, tf.float32)

    def _value(self, function: Callable[..., Any], *step: tf.Tensor) -> tf.Tensor:
        key = function, len(step)
        if key not in self._of_function:
            self._of_function[key] = tf.cast(function(*step), tf.float32)
        return self._of_function[key]
