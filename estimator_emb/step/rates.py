# SPDX-License-Identifier: Apache-2.0
"""Computes the learning rate of each table in a step, and finds what may be wrong with it."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.optimizers import OptimizationParameters
from estimator_emb.spec.config import EmbeddingConfigSpec
from estimator_emb.spec.resolved import Table, optimizer_of
from estimator_emb.step.forms import Problem
from estimator_emb.tables import functions


class LearningRates:
    """The learning rate of each table in a step; tables that share a function share its value.

    A table's own rate, or its function of the step, takes precedence over the rate of its
    optimizer, which is a number or, in the TF2 vocabulary, a function without arguments. `step` is
    the global step before it is incremented.
    """

    def __init__(self, step: tf.Tensor):
        self._step = step
        self._of_function: dict[Any, tf.Tensor] = {}

    def of(self, table: Table, parameters: OptimizationParameters) -> tf.Tensor:
        """Returns the rate of a table, a float32 scalar; raises as `functions.rate` does."""
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


def problems(
    spec: EmbeddingConfigSpec,
    tables: Sequence[Table],
    rates: Sequence[tf.Tensor],
    multiplier: tf.Tensor | None,
) -> list[Problem]:
    """Returns the possible problems of the values that a program's functions have in a step."""
    owners: dict[Any, str] = {}  # By the tensor, which tables may share.
    for table, rate in zip(tables, rates, strict=True):
        parameters = optimizer_of(table)
        if table.config.learning_rate_fn is not None:
            owner, function = table_function(table.name), table.config.learning_rate_fn
        elif table.config.learning_rate is None and callable(parameters.learning_rate):
            owner, function = optimizer_function(table.name, parameters), parameters.learning_rate
        else:
            continue
        if tf.get_static_value(rate) is None:
            owners.setdefault(rate.ref(), f"{owner} {functions.name_of(function)}")
    found = []
    if owners:
        values = tf.stack([rate.deref() for rate in owners])
        good = tf.math.is_finite(values) & (values >= 0)
        text = "its value in this step must be finite and not negative; got"
        found.append(_problem(list(owners.values()), values, good, text))
    if multiplier is not None and tf.get_static_value(multiplier) is None:
        name = functions.name_of(spec.experimental_gradient_multiplier_fn)
        owner, values = f"{functions.MULTIPLIER} {name}", multiplier[None]
        text = "its value in this step must be finite; got"
        found.append(_problem([owner], values, tf.math.is_finite(values), text))
    return found


def _problem(owners: list[str], values: tf.Tensor, good: tf.Tensor, text: str) -> Problem:
    def message() -> tf.Tensor:
        first = tf.argmin(tf.cast(good, tf.int32))
        got = tf.strings.format("{}", values[first])
        return tf.strings.join([tf.gather(owners, first), f": {text} ", got, "."])

    return tf.reduce_all(good), message


def table_function(table: str) -> str:
    """Returns the name of a table's `learning_rate_fn` in messages."""
    return f"Table {table!r}: learning_rate_fn"


def optimizer_function(table: str, parameters: OptimizationParameters) -> str:
    """Returns the name in messages of a function that is an optimizer's `learning_rate`."""
    return f"Table {table!r}: the learning_rate of its {type(parameters).__name__},"
