# SPDX-License-Identifier: Apache-2.0
"""Translates an optimizer's step to StableHLO, by running its rule on symbols in place of arrays.

This is the third way to run the one definition of an optimizer, beside TensorFlow's ops and the
C++ of `native/rules.py`. SparseCore calls such a function for each row that an update touches.
"""

import dataclasses
from typing import Any

import numpy as np

from estimator_emb.optimizers import Math, OptimizationParameters, step

ROW, BOOLS = "!row", "!bools"
"""The types of a row's float32 numbers and of their comparisons, which `types` defines."""


class NoRule(Exception):
    """The error of an optimizer whose step is no function of one row, with the reason."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """An optimizer's step as a function of StableHLO.

    Attributes:
      statements: its statements, in the types `ROW` and `BOOLS`, so that they are the same for
        every dimension.
      results: the names of the new weights and of each new slot.
    """

    statements: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def slots(self) -> int:
        return len(self.results) - 1

    @property
    def result_type(self) -> str:
        """Returns the type of what the function returns: a tuple, also of one row."""
        return tuple_of([ROW] * len(self.results))

    def function(self, name: str) -> str:
        """Returns the function's text: (gradient, weights, *slots, learning rate) -> a tuple.

        Each argument is a row [1, dimension]; the learning rate is the same number in each column.
        """
        slots = [f"%s{slot}" for slot in range(self.slots)]
        arguments = ", ".join(f"{name}: {ROW}" for name in ("%g", "%w", *slots, "%lr"))
        lines = [
            f"func.func private @{name}({arguments}) -> {self.result_type} {{",
            *(f"  {statement}" for statement in self.statements),
            f"  %new = stablehlo.tuple {', '.join(self.results)} : {self.result_type}",
            f"  return %new : {self.result_type}",
            "}",
        ]
        return "\n".join(lines)


def types(dimension: int) -> str:
    """Returns the definitions of `ROW` and `BOOLS`, which stand before a module that has a rule."""
    return f"{ROW} = tensor<1x{dimension}xf32>\n{BOOLS} = tensor<1x{dimension}xi1>"


def tuple_of(types: list[str]) -> str:
    """Returns the type of a tuple of some types."""
    return f"tuple<{', '.join(types)}>"


def trace(parameters: OptimizationParameters, clipping_limit: float | None, cores: int) -> Rule:
    """Returns `optimizers.step` of an optimizer as a `Rule`.

    Args:
      parameters: the optimizer.
      clipping_limit: that of the `EmbeddingConfigSpec`; None means no limit.
      cores: number of cores whose gradients SparseCore sums before it calls the function.

    Raises:
      NoRule: the rule is not published, or is no function of one row and its summed gradient.
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
    function = _Function()
    try:
        results = step(
            parameters,
            function.math(),
            _Symbol(function, "%lr"),
            _Symbol(function, "%g"),
            _Symbol(function, "%w"),
            tuple(_Symbol(function, f"%s{slot}") for slot in range(len(parameters.slots))),
            clipping_limit,
        )
        names = tuple(function.name_of(result) for result in results)
    except Exception as error:  # A rule of the program's own may do anything.
        raise NoRule(
            f"the rule of {name} is more than arithmetic on rows: {type(error).__name__}: {error}"
        ) from error
    return Rule(tuple(function.statements), names)


class _Function:
    """A list of StableHLO's statements, each of which names the value of one operation."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self._names: dict[str, str] = {}

    def value(self, text: str, type_name: str = ROW) -> "_Symbol":
        """Returns the symbol of an operation's value; of the same operation, the same symbol."""
        if text not in self._names:
            self._names[text] = f"%{len(self._names)}"
            self.statements.append(f"{self._names[text]} = {text}")
        return _Symbol(self, self._names[text], type_name)

    def name_of(self, value: Any) -> str:
        """Returns the name of a symbol, or of the constant that a number becomes."""
        if isinstance(value, _Symbol):
            if value.type_name != ROW:
                raise TypeError("A comparison is no number: use where().")
            return value.name
        bits = int(np.float32(value).view(np.uint32))
        return self.value(f"stablehlo.constant dense<0x{bits:08X}> : {ROW}").name

    def call(self, operation: str, *operands: Any) -> "_Symbol":
        names = ", ".join(self.name_of(operand) for operand in operands)
        return self.value(f"stablehlo.{operation} {names} : {ROW}")

    def compare(self, direction: str, x: Any, y: Any) -> "_Symbol":
        names = f"{self.name_of(x)}, {self.name_of(y)}"
        types = f"({ROW}, {ROW}) -> {BOOLS}"
        return self.value(f"stablehlo.compare {direction}, {names} : {types}", BOOLS)

    def select(self, condition: Any, x: Any, y: Any) -> "_Symbol":
        if not isinstance(condition, _Symbol) or condition.type_name != BOOLS:
            raise TypeError("A rule's where() needs a comparison of rows as its condition.")
        names = f"{condition.name}, {self.name_of(x)}, {self.name_of(y)}"
        return self.value(f"stablehlo.select {names} : {BOOLS}, {ROW}")

    def math(self) -> Math:
        return Math(
            sqrt=lambda x: self.call("sqrt", x),
            pow=lambda x, y: self.call("power", x, y),
            minimum=lambda x, y: self.call("minimum", x, y),
            maximum=lambda x, y: self.call("maximum", x, y),
            sign=lambda x: self.call("sign", x),
            where=self.select,
            divide_no_nan=lambda x, y: self.select(self.compare("EQ", y, 0.0), 0.0, x / y),
        )


class _Symbol:
    """A value that has a name in a function; arithmetic on it appends to the function."""

    __array_ufunc__ = None  # Leaves arithmetic of a NumPy scalar with a symbol to the symbol.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, function: _Function, name: str, type_name: str = ROW):
        self.function, self.name, self.type_name = function, name, type_name

    def __neg__(self) -> "_Symbol":
        return self.function.call("negate", self)

    def __bool__(self) -> bool:
        raise TypeError("A rule cannot branch on the rows it updates: use where().")


def _operator(operation: str, swapped: bool = False) -> Any:
    def operator(self: _Symbol, other: Any) -> _Symbol:
        operands = (other, self) if swapped else (self, other)
        return self.function.call(operation, *operands)

    return operator


def _comparison(direction: str) -> Any:
    return lambda self, other: self.function.compare(direction, self, other)


for _name, _operation in (
    ("add", "add"),
    ("sub", "subtract"),
    ("mul", "multiply"),
    ("truediv", "divide"),
):
    setattr(_Symbol, f"__{_name}__", _operator(_operation))
    setattr(_Symbol, f"__r{_name}__", _operator(_operation, swapped=True))
for _name in ("lt", "le", "gt", "ge", "eq"):
    setattr(_Symbol, f"__{_name}__", _comparison(_name.upper()))
