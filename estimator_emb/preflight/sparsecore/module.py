# SPDX-License-Identifier: Apache-2.0
"""Writes the StableHLO programs that libtpu compiles for SparseCore.

They use the two custom calls that TensorFlow's `XlaSparseDenseMatmulWithCsrInput` and
`XlaSparseDenseMatmulGradWithCsrInput` become on a TPU; off a TPU, TensorFlow lowers neither. A chip
gets the ids of its part of the batch from its host, sorted by the SparseCore that has their rows:

    row_pointers   where the ids of each SparseCore end, for each SparseCore of this chip and each
                   minibatch
    rows           the row of each id, on the SparseCore that has it
    samples        the sample of each id
    gains          the weight of each id, after the combiner
"""

import json
from typing import Any

from estimator_emb.preflight.sparsecore.layout import (
    PADDING,
    Chips,
    SparseCoreLimits,
    Stack,
    padded,
)
from estimator_emb.preflight.sparsecore.rule import ROW, RowFunction, tuple_of, types

LOOKUP = "SparseDenseMatmulWithMinibatchingOp"
UPDATE = "SparseDenseMatmulGradOptimizerUpdateWithMinibatchingOp"

_MOD = 1
"""libtpu's number for the strategy that puts row r on SparseCore r mod their number."""

_NO_ID = 2**31 - 1
"""The value in places of the buffers that hold no id."""

_ON_SPARSE_CORE = '{mhlo.layout_mode = "{1,0:T(8)}"}'
"""SparseCore's layout of rows; with the TensorCore's, each step would copy the tables."""


def lookup(stack: Stack, chips: Chips, limits: SparseCoreLimits) -> str:
    """Returns the program that looks a stack up: ids and table -> activations."""
    ids = _Ids(stack, chips, limits)
    table, activations = _table(stack), _activations(stack)
    config = _config(limits)
    return f"""\
module @lookup {{
  func.func public @main({ids.parameters}, %table: {table} {_ON_SPARSE_CORE}) -> {activations} {{
    %zeros = stablehlo.constant dense<0.0> : {activations}
    %looked_up = stablehlo.custom_call @{LOOKUP}({ids.names}, %table, %zeros) {{
      api_version = 1 : i32, backend_config = {config}
    }} : ({ids.types}, {table}, {activations}) -> {activations}
    return %looked_up : {activations}
  }}
}}
"""


def update(stack: Stack, rule: RowFunction, chips: Chips, limits: SparseCoreLimits) -> str:
    """Returns the program that updates a stack: ids, weights, slots, gradients, rate -> new ones.

    The learning rate is an argument, because a step may have its own; all other numbers of the
    optimizer are constants of the rule.
    """
    ids = _Ids(stack, chips, limits)
    table, activations = _table(stack), _activations(stack)
    count = 1 + rule.slots
    names = ", ".join(f"%table_{k}" for k in range(count))
    parameters = ", ".join(
        f"%table_{k}: {table} {{tf.aliasing_output = {k} : i32, {_ON_SPARSE_CORE[1:]}"
        for k in range(count)
    )
    tables = ", ".join([table] * count)
    updated = tuple_of([table] * count)
    parts = "\n".join(
        f"    %new_{k} = stablehlo.get_tuple_element %updated[{k}] : ({updated}) -> {table}"
        for k in range(count)
    )
    config = _config(limits, num_slot_variables=rule.slots, num_hyperparameters=1)
    return f"""\
{types(stack.dimension)}
module @update {{
{rule.function("rule")}
  func.func public @main({ids.parameters}, {parameters}, %gradients: {activations},
      %rate: tensor<f32>) -> ({", ".join([f"{table} {_ON_SPARSE_CORE}"] * count)}) {{
    %updated = stablehlo.custom_call @{UPDATE}({ids.names}, {names}, %gradients, %rate) {{
      api_version = 1 : i32, backend_config = {config}, called_computations = [@rule]
    }} : ({ids.types}, {tables}, {activations}, tensor<f32>) -> {updated}
{parts}
    return {", ".join(f"%new_{k}" for k in range(count))} : {tables}
  }}
}}
"""


def evaluation(rule: RowFunction, columns: int) -> str:
    """Returns a program that calls the function of a rule, without SparseCore.

    It runs wherever XLA does, and so shows the numbers that the function of `update` computes:
    (gradient, weights, *slots, learning rate) -> (weights, *slots), all [1, columns].
    """
    names = ["%g", "%w", *(f"%s{slot}" for slot in range(rule.slots)), "%lr"]
    parameters = ", ".join(f"{name}: {ROW}" for name in names)
    rows = ", ".join([ROW] * (1 + rule.slots))
    taken = ", ".join([ROW] * len(names))
    parts = "\n".join(
        f"    %new_{k} = stablehlo.get_tuple_element %new[{k}] : ({rule.result_type}) -> {ROW}"
        for k in range(1 + rule.slots)
    )
    return f"""\
{types(columns)}
module @evaluation {{
{rule.function("rule")}
  func.func public @main({parameters}) -> ({rows}) {{
    %new = func.call @rule({", ".join(names)}) : ({taken}) -> {rule.result_type}
{parts}
    return {", ".join(f"%new_{k}" for k in range(1 + rule.slots))} : {rows}
  }}
}}
"""


class _Ids:
    """The arguments that hold the ids of one chip, as text of StableHLO."""

    def __init__(self, stack: Stack, chips: Chips, limits: SparseCoreLimits):
        pointers = padded(chips.partitions, PADDING) * chips.sparse_cores * limits.max_minibatches
        # Even the buffers of a small batch hold one full minibatch.
        ids = max(
            stack.samples * limits.max_ids_per_chip_per_sample,
            padded(limits.max_ids_per_partition, PADDING) * chips.partitions * chips.sparse_cores,
        )
        arguments = {
            "%row_pointers": f"tensor<{pointers}xi32>",
            "%rows": f"tensor<{ids}xi32>",
            "%samples": f"tensor<{ids}xi32>",
            "%gains": f"tensor<{ids}xf32>",
            "%minibatches": "tensor<i32>",
        }
        self.names = ", ".join(arguments)
        self.types = ", ".join(arguments.values())
        self.parameters = ", ".join(f"{name}: {kind}" for name, kind in arguments.items())


def _table(stack: Stack) -> str:
    return f"tensor<{stack.rows}x{stack.dimension}xf32>"


def _activations(stack: Stack) -> str:
    return f"tensor<{stack.samples}x{stack.dimension}xf32>"


def _config(limits: SparseCoreLimits, **more: Any) -> str:
    config = {
        "max_ids_per_partition": limits.max_ids_per_partition,
        "max_unique_ids_per_partition": limits.max_unique_ids_per_partition,
        "sharding_strategy": _MOD,
        "pad_value": _NO_ID,
        **more,
    }
    text = json.dumps({"sparse_dense_matmul_config": config, "device_type": _DEVICE})
    return '"' + text.replace('"', "\\22") + '"'


_DEVICE = "DEVICE_TYPE_SPARSECORE"
