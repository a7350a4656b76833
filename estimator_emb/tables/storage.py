# SPDX-License-Identifier: Apache-2.0
"""The variables of a table: its weights and its optimizer's slots, under their legacy names."""

import dataclasses
from collections.abc import Callable, Mapping
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
        graph. The checkpoint calls them `<name>` either way. Slots that the optimizer's
        `slot_variable_creation_fn` creates have the names that it gives them.

    Raises:
      ValueError: `slot_variable_creation_fn` returns something else than a variable of the table's
        shape and dtype for each slot.
    """
    # Warm starting by pattern looks among the trainable variables. By now the program's optimizer
    # has made its list of them, so it leaves the table alone.
    weights = _variable(table, name, _unfolded(table.config.initializer), as_part, trainable=True)
    if parameters and parameters.slot_variable_creation_fn:
        return TableVariables(weights, _slots_of_program(table, weights, parameters))
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


def read_rows(variable: tf.Variable, rows: tf.Tensor) -> tf.Tensor:
    """float32 [n, dimension]: `rows`, int32 or int64 [n], of the weights or of a slot."""
    # Half the time of sparse_read, and what Grappler turns into a copy of the table is sparse_read.
    return variable.gather_nd(tf.expand_dims(rows, 1))


def _slots_of_program(
    table: Table, weights: tf.Variable, parameters: OptimizationParameters
) -> tuple[tf.Variable, ...]:
    """The slots that `slot_variable_creation_fn` creates, in the optimizer's order."""
    assert parameters.slot_variable_creation_fn
    names = [slot.name for slot in parameters.slots]
    created = parameters.slot_variable_creation_fn(
        weights, names, [_constant(parameters.initial_value(slot)) for slot in parameters.slots]
    )
    owner = f"Table {table.name!r}: slot_variable_creation_fn of {type(parameters).__name__}"
    if not isinstance(created, Mapping) or set(created) != set(names):
        found = f"the keys {list(created)}" if isinstance(created, Mapping) else repr(created)
        raise ValueError(
            f"{owner} must return a dict of variables with the keys {names}; got {found}."
        )
    for name in names:
        variable = created[name]
        if not isinstance(variable, tf.Variable) or not hasattr(variable, "handle"):
            raise ValueError(
                f"{owner} must return a resource variable (use_resource=True) for slot {name!r}; "
                f"got {variable!r}."
            )
        if variable.shape != weights.shape or variable.dtype != weights.dtype:
            raise ValueError(
                f"{owner} must return a variable of the table's shape {weights.shape} and dtype "
                f"{weights.dtype.name} for slot {name!r}; got shape {variable.shape} and dtype "
                f"{variable.dtype.name}."
            )
    return tuple(created[name] for name in names)


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

    A constant of the shape of a table would be computed once, when the graph is optimized or its
    executor made, and stay in memory beside the variable. What follows from a random number is
    never computed then; this one is always 0.
    """

    def initializer(shape: Any, dtype: tf.DType = tf.float32, **_: Any) -> tf.Tensor:
        zero = tf.raw_ops.RandomUniformInt(
            shape=tf.constant([], tf.int32), minval=0, maxval=1, seed=1, seed2=1
        )
        return tf.fill(shape, tf.constant(value, dtype) + tf.cast(zero, dtype))

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
