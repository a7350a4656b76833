# SPDX-License-Identifier: Apache-2.0
"""The variables of a table: its weights and its optimizer's slots, under their legacy names."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_emb.config import Table
from estimator_emb.optimizers import OptimizationParameters


@dataclasses.dataclass(frozen=True)
class TableVariables:
    """The variables of one table, all float32 [vocabulary_size, dimension].

    Attributes:
      weights: the table.
      slots: the optimizer's slots, in the optimizer's order.
    """

    weights: tf.Variable
    slots: tuple[tf.Variable, ...]


def create(
    table: Table,
    name: str,
    parameters: OptimizationParameters | None,
    as_part: bool,
) -> TableVariables:
    """Creates the variables of a table in the graph's global variables.

    Args:
      table: the table.
      name: name of the weights; slots append their suffix to it.
      parameters: the optimizer; None creates no slots.
      as_part: True names the variables `<name>/part_0`, as a program on a TPU finds them in its
        graph. The checkpoint calls them `<name>` either way.
    """
    # Warm starting by pattern looks among the trainable variables. By now the program's optimizer
    # has made its list of them, so it leaves the table alone.
    weights = _variable(table, name, _unfolded(table.config.initializer), as_part, trainable=True)
    slots = parameters.slots if parameters else ()
    return TableVariables(
        weights,
        tuple(
            _variable(
                table,
                name + slot.suffix,
                _constant(parameters.initial_value(slot)),  # type: ignore[union-attr]
                as_part,
                trainable=False,
            )
            for slot in slots
        ),
    )


def _variable(
    table: Table, name: str, initializer: Callable[..., Any], as_part: bool, trainable: bool
) -> tf.Variable:
    variable = tf.compat.v1.get_variable(
        name,
        shape=[table.config.vocabulary_size, table.config.dimension],
        dtype=tf.float32,
        initializer=initializer,
        trainable=trainable,
        use_resource=True,
        partitioner=tf.compat.v1.fixed_size_partitioner(1) if as_part else None,
    )
    return list(variable)[0] if as_part else variable


def _constant(value: float) -> Callable[..., tf.Tensor]:
    """An initializer that fills with `value`.

    A constant of the shape of a table would be computed once, when the graph is optimized, and stay
    in memory beside the variable. A placeholder, even one with a default, is never folded.
    """

    def initializer(shape: Any, dtype: tf.DType = tf.float32, **_: Any) -> tf.Tensor:
        scalar = tf.compat.v1.placeholder_with_default(tf.constant(value, dtype), [])
        return tf.fill(shape, scalar)

    return initializer


def _unfolded(initializer: Callable[..., Any]) -> Callable[..., Any]:
    """`initializer`, or its equal that is not folded, where it fills with one number."""
    for module in (tf.compat.v1, tf):
        if isinstance(initializer, module.zeros_initializer):
            return _constant(0.0)
        if isinstance(initializer, module.ones_initializer):
            return _constant(1.0)
        if isinstance(initializer, module.constant_initializer):
            value = initializer.get_config()["value"]
            if isinstance(value, (int, float)):
                return _constant(float(value))
    return initializer
