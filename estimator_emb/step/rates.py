# SPDX-License-Identifier: Apache-2.0
"""The learning rate of each table in a step."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_emb.optimizers import OptimizationParameters
from estimator_emb.spec import Table
from estimator_emb.tables import functions


class LearningRates:
    """The learning rate of each table in a step; tables that share a function share its value.

    A table's own rate, or its function of the step, takes precedence over the rate of its
    optimizer, which is a number or, in the TF2 vocabulary, a function without arguments.

    Args:
      step: int64 scalar, the global step before it is incremented.
    """

    def __init__(self, step: tf.Tensor):
        self._step = step
        self._of_function: dict[Any, tf.Tensor] = {}

    def of(self, table: Table, parameters: OptimizationParameters) -> tf.Tensor:
        """Returns the rate of a table, a float32 scalar; raises what `functions.rate` raises."""
        config = table.config
        if config.learning_rate_fn is not None:
            return self._value(table_function(table.name), config.learning_rate_fn, self._step)
        if config.learning_rate is not None:
            return tf.constant(config.learning_rate, tf.float32)
        if callable(parameters.learning_rate):
            return self._value(optimizer_function(table.name, parameters), parameters.learning_rate)
        return tf.constant(parameters.learning_rate, tf.float32)

    def _value(self, owner: str, function: Callable[..., Any], *step: tf.Tensor) -> tf.Tensor:
        key = function, len(step)
        if key not in self._of_function:
            self._of_function[key] = functions.rate(owner, function, *step)
        return self._of_function[key]


def table_function(table: str) -> str:
    """Returns what messages call the `learning_rate_fn` of a table."""
    return f"Table {table!r}: learning_rate_fn"


def optimizer_function(table: str, parameters: OptimizationParameters) -> str:
    """Returns what messages call the function that is the `learning_rate` of an optimizer."""
    return f"Table {table!r}: the learning_rate of its {type(parameters).__name__},"
