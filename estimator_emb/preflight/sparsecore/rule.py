# SPDX-License-Identifier: Apache-2.0
"""Translates an optimizer's step to StableHLO, by running its rule on symbols in place of arrays.

TensorFlow's ops and the C++ of `native/rules.py` run the same definition of an optimizer.
SparseCore calls such a function for each row that an update touches.
"""

import dataclasses
from typing import Any

import numpy as np

from estimator_emb.optimizers import Math, OptimizationParameters, step
from estimator_emb.optimizers._symbols import COMPARISONS, Symbol, SymbolicProgram

ROW, BOOLS = "!row", "!bools"
"""The types of a row's float32 numbers and of their comparisons; `types` defines them."""


class NoRule(Exception):
    """The error of an optimizer whose step is not a function of one row, with the reason."""


@dataclasses.dataclass(frozen=True)
class RowFunction:
    """An optimizer's step as a function of StableHLO.

    Attributes:
      statements: in the types `ROW` and `BOOLS`, and so the same for every dimension.
      results: the names of the new weights and of each new slot.
    """

    statements: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def slots(self) -> int:
        return len(self.results) - 1

    @property
    def result_type(self) -> str:
        """Returns the type of the function's result: a tuple, even of one row."""
        return tuple_of([ROW] * len(self.results))

    def function(self, name: str) -> str:
        """Returns the function's text: (gradient, weights, *slots, learning rate) -> a tuple.

        Each argument is a row [1, dimension]; the learning rate is the same number in each column.
        """
        names = ("%g", "%w", *_slots(self.slots), "%lr")
        arguments = ", ".join(f"{name}: {ROW}" for name in names)
        lines = [
            f"func.func private @{name}({arguments}) -> {self.result_type} {{",
            *(f"  {statement}" for statement in self.statements),
            f"  %new = stablehlo.tuple {', '.join(self.results)} : {self.result_type}",
            f"  return %new : {self.result_type}",
            "}",
        ]
        return "\n".join(lines)


def types(dimension: int) -> str:
    """Returns the definitions of `ROW` and `BOOLS`, which a module with a rule begins with."""
    return f"{ROW} = tensor<1x{dimension}xf32>\n{BOOLS} = tensor<1x{dimension}xi1>"


def tuple_of(types: list[str]) -> str:
    """Returns the type of a tuple of some types."""
    return f"tuple<{', '.join(types)}>"


def trace(
    parameters: OptimizationParameters, clipping_limit: float | None, cores: int
) -> RowFunction:
    """Returns `optimizers.step` of an optimizer as a `RowFunction`.

    SparseCore sums the gradients of `cores` cores before it calls the function. Raises NoRule where
    the rule is not published, or is not a function of one row and its summed gradient.
    """
    name = type(parameters).__name__
    if parameters.only_on_hardware:
        raise NoRule(f"the update rule of {name} was never published")
    if parameters.updates_untouched_rows:
        raise NoRule(
            f"{name}(lazy_adam=False) changes all rows of the table in each step, and SparseCore "
            "updates only those that the batch looks up: use lazy_adam=True"
        )
    if not parameters.use_gradient_accumulation and cores > 1:
        raise NoRule(
            f"{name}(use_gradient_accumulation=False) updates a row once for each core that looks "
            f"it up, and SparseCore sums the gradients of all {cores} cores before one update: use "
            "use_gradient_accumulation=True"
        )
    program = _StableHLO()
    lr, g, w, *slots = (
        Symbol(program, name) for name in ("%lr", "%g", "%w", *_slots(len(parameters.slots)))
    )
    try:
        results = step(parameters, program.math(), lr, g, w, tuple(slots), clipping_limit)
        names = tuple(map(program.name_of, results))
    except Exception as error:  # A rule of the program's own may do anything.
        raise NoRule(
            f"the rule of {name} is more than arithmetic on rows: {type(error).__name__}: {error}"
        ) from error
    return RowFunction(tuple(program.statements), names)


def _slots(count: int) -> list[str]:
    return [f"%s{slot}" for slot in range(count)]


class _StableHLO(SymbolicProgram):
    prefix = "%"

    def text(self, operation: str, operands: Any) -> str:
        first = self.name_of(operands[0], operation == "select")
        names = ", ".join([first, *map(self.name_of, operands[1:])])
        if operation in COMPARISONS:
            return f"stablehlo.compare {operation.upper()}, {names} : ({ROW}, {ROW}) -> {BOOLS}"
        types = f"{BOOLS}, {ROW}" if operation == "select" else ROW
        return f"stablehlo.{operation} {names} : {types}"

    def constant(self, number: np.float32) -> str:
        return self.value(
            f"stablehlo.constant dense<0x{int(number.view(np.uint32)):08X}> : {ROW}"
        ).name

    def math(self) -> Math:
        def divide_no_nan(x: Any, y: Any) -> Symbol:
            return self.apply("select", self.apply("eq", y, 0.0), 0.0, x / y)

        return dataclasses.replace(super().math(), divide_no_nan=divide_no_nan)
