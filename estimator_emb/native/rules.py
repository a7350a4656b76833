"""Translates an optimizer's step to C++, by running its rule on symbols instead of arrays.

The hyper-parameters, including limits and decays that are not set, become arguments of the C++
function. So optimizers that differ only in numbers share the same source.
"""

import dataclasses
import functools
import hashlib
import inspect
from typing import Any

import numpy as np

from estimator_emb.optimizers import OptimizationParameters, step
from estimator_emb.optimizers._parameters import Math


@dataclasses.dataclass(frozen=True)
class Rule:
    """An optimizer's step in C++: statements for element i, and values of their c0, c1, ..."""

    body: str
    slots: int
    constants: tuple[float, ...]

    @property
    def name(self) -> str:
        return "rule_" + hashlib.sha256(self.source.encode()).hexdigest()[:16]

    @property
    def source(self) -> str:
        """Returns a translation unit that defines ESTIMATOR_EMB_NAME, a `Rule` of kernels.h."""
        return _SOURCE.format(
            slots=self.slots,
            pointers="".join(
                f"    float* __restrict s{k} = variables[{k + 1}] + at;\n"
                for k in range(self.slots)
            ),
            numbers="".join(
                f"    const float c{k} = constants[{k}];\n" for k in range(len(self.constants))
            ),
            body=self.body,
        )


def trace(parameters: OptimizationParameters, clipping_limit: float | None) -> Rule:
    """Translates `optimizers.step` of an optimizer to C++."""
    program = _Program()
    targets = [f"s{k}[i]" for k in range(len(parameters.slots))]
    *slots, lr, g, w = map(program.value, (*targets, "lr", "g[i]", "w[i]"))
    functions = ("sqrt", "power", "minimum", "maximum", "sign", "select")
    math = Math(*(functools.partial(program.apply, name) for name in functions))
    results = step(parameters, math, lr, g, w, tuple(slots), clipping_limit, complete=True)
    stores = [
        f"{target} = {program.name_of(result)};"
        for target, result in zip(("w[i]", *targets), results, strict=True)
    ]
    lines = "".join(f"      {line}\n" for line in (*program.statements, *stores))
    return Rule(lines, len(slots), tuple(program.constants))


_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=="}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", **_COMPARISONS}
_FUNCTIONS = {"sqrt": "sqrtf", "power": "powf"}
_ROOTS = {0.5: "sqrtf({})", -0.5: "1.0f / sqrtf({})"}
"""Exponent -> C++ that is faster than powf."""


class _Program:
    """A rule in C++: statements that each name the value of an operation."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.constants: list[float] = []
        self._names: dict[str, str] = {}

    def value(self, text: str, is_condition: bool = False) -> "_Symbol":
        """Returns the symbol of an operation's value. Equal operations share a symbol."""
        if text not in self._names:
            name = self._names[text] = f"x{len(self._names)}"
            kind = "bool" if is_condition else "float"
            # Unused if the rule does not need the value.
            self.statements.append(f"[[maybe_unused]] const {kind} {name} = {text};")
        return _Symbol(self, self._names[text], is_condition)

    def apply(self, operation: str, *operands: Any) -> "_Symbol":
        return self.value(self._text(operation, operands), operation in _COMPARISONS)

    def name_of(self, value: Any, is_condition: bool = False) -> str:
        """Returns the name of a symbol, or of a new constant for a number."""
        if is_condition != getattr(value, "is_condition", False):
            raise TypeError(
                "A rule's where() needs a comparison of rows as its condition."
                if is_condition
                else "A comparison is not a number: use where()."
            )
        if isinstance(value, _Symbol):
            return value.name
        self.constants.append(float(np.float32(value)))
        return f"c{len(self.constants) - 1}"

    def _text(self, operation: str, operands: Any) -> str:
        by_number = not isinstance(operands[-1], _Symbol)
        if operation == "power" and by_number and operands[1] in _ROOTS:
            return _ROOTS[operands[1]].format(self.name_of(operands[0]))
        first = self.name_of(operands[0], operation == "select")
        names = [first, *map(self.name_of, operands[1:])]
        if operation in _SIGNS:
            return f" {_SIGNS[operation]} ".join(names)
        if operation == "select":
            return "{} ? {} : {}".format(*names)
        if operation == "negate":
            return f"-{first}"
        # A constant is never NaN. Knowing this saves an instruction.
        number = "_number" if by_number and operation in ("minimum", "maximum") else ""
        return f"{_FUNCTIONS.get(operation, operation)}{number}({', '.join(names)})"


class _Symbol:
    """A named value in a program. Arithmetic on it appends to the program."""

    __array_ufunc__ = None  # NumPy scalars leave arithmetic with a symbol to the symbol.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, program: _Program, name: str, is_condition: bool):
        self.program, self.name, self.is_condition = program, name, is_condition

    def __neg__(self) -> "_Symbol":
        return self.program.apply("negate", self)

    def __bool__(self) -> bool:
        raise TypeError("A rule cannot branch on the rows it updates: use where().")


def _add_operator(name: str) -> None:
    def operate(self: _Symbol, other: Any) -> _Symbol:
        return self.program.apply(name, self, other)

    def swapped(self: _Symbol, other: Any) -> _Symbol:
        return self.program.apply(name, other, self)

    setattr(_Symbol, f"__{name}__", operate)
    if name not in _COMPARISONS:
        setattr(_Symbol, f"__r{name}__", swapped)


for _name in _SIGNS:
    _add_operator(_name)


_SOURCE = (
    inspect.cleandoc(
        """
    // Generated from the optimizer's rule.

    #include <math.h>

    #include "rows.h"

    namespace {{

    // NaN stays NaN, as in TensorFlow.
    inline float minimum(float x, float y) {{ return (x < y) | (x != x) ? x : y; }}
    inline float maximum(float x, float y) {{ return (x > y) | (x != x) ? x : y; }}
    inline float minimum_number(float x, float y) {{ return y < x ? y : x; }}
    inline float maximum_number(float x, float y) {{ return y > x ? y : x; }}
    inline float sign(float x) {{ return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }}

    struct Step {{
      static inline void run(int64_t n, float lr, const float* constants, const float* g,
                             float* const* variables, int64_t at) {{
        float* __restrict w = variables[0] + at;
    {pointers}{numbers}    #pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {{
    {body}    }}
      }}
    }};

    }}  // namespace

    extern "C" __attribute__((visibility("default")))
    void ESTIMATOR_EMB_NAME(const estimator_emb::Rows* rows) {{
      estimator_emb::update_rows<Step>(rows, {slots});
    }}
    """
    )
    + "\n"
)
