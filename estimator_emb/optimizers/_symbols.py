# SPDX-License-Identifier: Apache-2.0
"""Translates a rule to another language, by running it on symbols instead of arrays."""

from typing import Any

import numpy as np

from estimator_emb.optimizers._math import Math

COMPARISONS = ("lt", "le", "gt", "ge", "eq")


class SymbolicProgram:
    """A rule in one language: statements that each name the value of one operation."""

    prefix = ""
    """Prefix of the names of values."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self._names: dict[str, str] = {}

    def text(self, operation: str, operands: Any) -> str:
        """Returns an operation in the language, with operands named by `name_of`.

        The operation is 'add', 'subtract', 'multiply', 'divide', 'negate', 'sqrt', 'power',
        'minimum', 'maximum', 'sign', 'select', or one of `COMPARISONS`.
        """
        raise NotImplementedError

    def constant(self, number: np.float32) -> str:
        raise NotImplementedError

    def declared(self, name: str, text: str, is_condition: bool) -> str:
        return f"{name} = {text}"

    def value(self, text: str, is_condition: bool = False) -> "Symbol":
        """Returns the symbol of an operation's value, which is the same for the same operation."""
        if text not in self._names:
            self._names[text] = f"{self.prefix}{len(self._names)}"
            self.statements.append(self.declared(self._names[text], text, is_condition))
        return Symbol(self, self._names[text], is_condition)

    def apply(self, operation: str, *operands: Any) -> "Symbol":
        return self.value(self.text(operation, operands), operation in COMPARISONS)

    def name_of(self, value: Any, is_condition: bool = False) -> str:
        """Returns the name of a symbol, or of a new constant for a number."""
        if is_condition != getattr(value, "is_condition", False):
            raise TypeError(
                "A rule's where() needs a comparison of rows as its condition."
                if is_condition
                else "A comparison is no number: use where()."
            )
        return value.name if isinstance(value, Symbol) else self.constant(np.float32(value))

    def math(self) -> Math:
        def function(operation: str) -> Any:
            return lambda *operands: self.apply(operation, *operands)

        return Math(*map(function, ("sqrt", "power", "minimum", "maximum", "sign", "select")))


class Symbol:
    """A named value in a program; arithmetic on it appends to the program."""

    __array_ufunc__ = None  # NumPy scalars leave arithmetic with a symbol to the symbol.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, program: SymbolicProgram, name: str, is_condition: bool = False):
        self.program, self.name, self.is_condition = program, name, is_condition

    def __neg__(self) -> "Symbol":
        return self.program.apply("negate", self)

    def __bool__(self) -> bool:
        raise TypeError("A rule cannot branch on the rows it updates: use where().")


def _operator(operation: str) -> Any:
    return lambda self, other: self.program.apply(operation, self, other)


def _swapped(operation: str) -> Any:
    return lambda self, other: self.program.apply(operation, other, self)


for _name, _sign in (
    ("add", "add"),
    ("subtract", "sub"),
    ("multiply", "mul"),
    ("divide", "truediv"),
):
    setattr(Symbol, f"__{_sign}__", _operator(_name))
    setattr(Symbol, f"__r{_sign}__", _swapped(_name))
for _name in COMPARISONS:
    setattr(Symbol, f"__{_name}__", _operator(_name))
