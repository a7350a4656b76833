"""Computes the learning rate of each table in a step, and finds what may be wrong with it."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.optimizers import OptimizationParameters
from estimator_emb.spec.config import EmbeddingConfigSpec, TableConfig
from estimator_emb.spec.resolved import Table, optimizer_of
from estimator_emb.step.forms import Problem
from estimator_emb.tables import functions


class LearningRates:
    """The learning rate of each table in a step; tables of one number or function share its value.

    A table's own rate, or its function of the step, takes precedence over the rate of its
    optimizer, which is a number or, in the TF2 vocabulary, a function without arguments. `step` is
    the global step before it is incremented.
    """

    def __init__(self, step: tf.Tensor):
        self._step = step
        # No dict: a callable object may have no hash.
        self._of_function: list[tuple[Any, tf.Tensor]] = []
        self._of_number: dict[float, tf.Tensor] = {}

    def of(self, table: Table, parameters: OptimizationParameters) -> tf.Tensor:
        found = function_of(table.name, table.config, parameters)
        if found is None:
            own = table.config.learning_rate
            number: Any = parameters.learning_rate if own is None else own
            if number not in self._of_number:
                self._of_number[number] = tf.constant(number, tf.float32)
            return self._of_number[number]
        owner, function, takes_step = found
        for known, rate in self._of_function:
            if known == (function, takes_step):
                return rate
        rate = functions.rate(owner, function, *([self._step] if takes_step else []))
        self._of_function.append(((function, takes_step), rate))
        return rate


def function_of(
    table: str, config: TableConfig, parameters: OptimizationParameters
) -> tuple[str, Callable[..., Any], bool] | None:
    """Returns the function that gives the rate of a table; None if the rate is a number.

    Before it stands its name in messages, and after it whether it takes the global step.
    """
    if config.learning_rate_fn is not None:
        return f"Table {table!r}: learning_rate_fn", config.learning_rate_fn, True
    if config.learning_rate is None and callable(parameters.learning_rate):
        owner = f"Table {table!r}: the learning_rate of its {type(parameters).__name__},"
        return owner, parameters.learning_rate, False
    return None


def problems(
    spec: EmbeddingConfigSpec,
    tables: Sequence[Table],
    rates: Sequence[tf.Tensor],
    multiplier: tf.Tensor | None,
) -> list[Problem]:
    """Returns the possible problems of the values that a program's functions have in a step."""
    owners: dict[Any, str] = {}  # By the tensor, which tables may share.
    for table, rate in zip(tables, rates, strict=True):
        of_table = function_of(table.name, table.config, optimizer_of(table))
        if of_table is not None and tf.get_static_value(rate) is None:
            owner, function, _ = of_table
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
