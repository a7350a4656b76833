"""Computes the learning rate of each table in a step, and checks its value."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.engine.structure_checks import Problem
from estimator_emb.engine.tables import functions
from estimator_emb.spec.config import EmbeddingConfigSpec
from estimator_emb.spec.resolved import Table


class DynamicRates:
    """The learning rates that are functions, and the number ("tag") of each.

    Tags count up from 0 in the order in which functions are first used. Tables that share a
    function share its tag.
    """

    def __init__(self, tables: Sequence[Table]):
        # Not a dict, because a callable object may be unhashable.
        self._rates: list[tuple[str, Callable[..., Any], bool]] = []
        self._tags: dict[str, int] = {}
        for table in tables:
            found = function_of(table)
            if found is not None:
                known = [rate[1:] for rate in self._rates]
                if found[1:] not in known:
                    self._rates.append(found)
                self._tags[table.name] = [*known, found[1:]].index(found[1:])

    def tag(self, table: str) -> int | None:
        return self._tags.get(table)

    def values(self, step: Any) -> list[tf.Tensor]:
        """Returns the rate of each tag in this step, as float32 scalars.

        `step` is the global step before this step increments it. Raises ValueError if `step` is
        None and a function needs it. Also raises the errors of `functions.rate`.
        """
        if step is None and any(takes_step for *_, takes_step in self._rates):
            raise ValueError(
                "step must be given, because tables have a learning_rate_fn, which takes it; got "
                "None."
            )
        return [
            functions.rate(owner, function, *([step] if takes_step else []))
            for owner, function, takes_step in self._rates
        ]


def table_rates(tables: Sequence[Table], step: Any) -> list[tf.Tensor]:
    """Returns the learning rate of each table in a step.

    Tables with the same number or function share a tensor. `step` is as in `DynamicRates.values`.
    """
    dynamic = DynamicRates(tables)
    values = dynamic.values(step)
    constant = functools.cache(lambda number: tf.constant(number, tf.float32))
    rates = []
    for table in tables:
        tag, own = dynamic.tag(table.name), table.config.learning_rate
        number = table.trained_by.learning_rate if own is None else own
        rates.append(constant(number) if tag is None else values[tag])
    return rates


def function_of(table: Table) -> tuple[str, Callable[..., Any], bool] | None:
    """Returns the function that computes a table's rate, or None if the rate is a number.

    The result is (name in messages, function, whether it takes the global step). The function is
    the table's `learning_rate_fn` or, in the TF2 vocabulary, its optimizer's function without
    arguments.
    """
    config, optimizer = table.config, table.optimizer
    if config.learning_rate_fn is not None:
        return f"Table {table.name!r}: learning_rate_fn", config.learning_rate_fn, True
    if config.learning_rate is None and optimizer and callable(optimizer.learning_rate):
        owner = f"Table {table.name!r}: the learning_rate of its {type(optimizer).__name__},"
        return owner, optimizer.learning_rate, False
    return None


def problems(
    spec: EmbeddingConfigSpec,
    tables: Sequence[Table],
    rates: Sequence[tf.Tensor],
    multiplier: tf.Tensor | None,
) -> list[Problem]:
    """Returns the possible problems of rates and a multiplier that functions compute."""
    owners: dict[Any, str] = {}  # By the rate's tensor. Tables may share a tensor.
    for table, rate in zip(tables, rates, strict=True):
        of_table = function_of(table)
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
