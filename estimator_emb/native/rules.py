# SPDX-License-Identifier: Apache-2.0
"""Translates an optimizer's step to C++, by running its rule on symbols in place of arrays.

The hyper-parameters become arguments of the C++ function, so that optimizers that differ only in
numbers share one source. A limit or a decay that is not set is a number too.
"""

import dataclasses
import hashlib
import inspect
from typing import Any

import numpy as np

from estimator_emb.optimizers import Math, OptimizationParameters, step


@dataclasses.dataclass(frozen=True)
class Rule:
    """An optimizer's step as C++ statements, and the numbers that they take.

    Attributes:
      body: the statements that update element i, in C++.
      slots: number of slots that they update.
      constants: the numbers that `body` calls c0, c1, ...
    """

    body: str
    slots: int
    constants: tuple[float, ...]

    @property
    def name(self) -> str:
        """Returns a name that rules of the same source share."""
        return "rule_" + hashlib.sha256(self.source("").encode()).hexdigest()[:16]

    def source(self, name: str) -> str:
        """Returns a translation unit that defines the function `name`, a `Rule` of kernels.h."""
        return _SOURCE.format(
            name=name,
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
    """Returns `optimizers.step` of an optimizer as a `Rule`."""
    program = _Program()
    slots = [program.leaf(f"s{k}[i]") for k in range(len(parameters.slots))]
    results = step(
        parameters,
        _symbolic_math(program),
        program.leaf("lr"),
        program.leaf("g[i]"),
        program.leaf("w[i]"),
        tuple(slots),
        clipping_limit,
        complete=True,
    )
    targets = ["w[i]", *(f"s{k}[i]" for k in range(len(slots)))]
    stores = [
        f"{target} = {program.of(value).name};"
        for target, value in zip(targets, results, strict=True)
    ]
    lines = "".join(f"      {line}\n" for line in (*program.lines, *stores))
    return Rule(lines, len(slots), tuple(program.constants))


class _Program:
    """A list of C++ statements, each of which names the value of one operation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: list[float] = []
        self._names: dict[str, str] = {}

    def leaf(self, text: str) -> "_Symbol":
        return self.value(text)

    def value(self, text: str, kind: str = "float") -> "_Symbol":
        if text not in self._names:
            self._names[text] = f"x{len(self._names)}"
            self.lines.append(f"const {kind} {self._names[text]} = {text};")
        return _Symbol(self, self._names[text])

    def of(self, value: Any) -> "_Symbol":
        """Returns a symbol as it is, and a number as the symbol of a new constant."""
        if isinstance(value, _Symbol):
            return value
        self.constants.append(float(np.float32(value)))
        return _Symbol(self, f"c{len(self.constants) - 1}")

    def call(self, text: str, *operands: Any, kind: str = "float") -> "_Symbol":
        return self.value(text.format(*(self.of(operand).name for operand in operands)), kind)


class _Symbol:
    """A value that has a name in a program; arithmetic on it appends to the program."""

    __array_ufunc__ = None  # Leaves arithmetic of a NumPy scalar with a symbol to the symbol.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, program: _Program, name: str):
        self.program, self.name = program, name

    def __neg__(self) -> "_Symbol":
        return self.program.call("-{}", self)

    def __bool__(self) -> bool:
        raise TypeError("A rule cannot branch on the rows it updates: use where().")


def _operator(text: str, swapped: bool = False, kind: str = "float") -> Any:
    def operator(self: _Symbol, other: Any) -> _Symbol:
        operands = (other, self) if swapped else (self, other)
        return self.program.call(text, *operands, kind=kind)

    return operator


for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/")):
    setattr(_Symbol, f"__{_name}__", _operator(f"{{}} {_sign} {{}}"))
    setattr(_Symbol, f"__r{_name}__", _operator(f"{{}} {_sign} {{}}", swapped=True))
for _name, _sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "==")):
    setattr(_Symbol, f"__{_name}__", _operator(f"{{}} {_sign} {{}}", kind="bool"))


def _symbolic_math(program: _Program) -> Math:
    def power(x: Any, y: Any) -> _Symbol:
        # For the usual exponents, square roots are faster than powf.
        if not isinstance(y, _Symbol) and y == 0.5:
            return program.call("sqrtf({})", x)
        if not isinstance(y, _Symbol) and y == -0.5:
            return program.call("1.0f / sqrtf({})", x)
        return program.call("powf({}, {})", x, y)

    return Math(
        sqrt=lambda x: program.call("sqrtf({})", x),
        pow=power,
        minimum=lambda x, y: program.call(_limit("minimum", y), x, y),
        maximum=lambda x, y: program.call(_limit("maximum", y), x, y),
        sign=lambda x: program.call("sign({})", x),
        where=lambda condition, x, y: program.call("{} ? {} : {}", condition, x, y),
    )


def _limit(function: str, by: Any) -> str:
    # A number, which is never NaN, takes one instruction.
    return function + ("({}, {})" if isinstance(by, _Symbol) else "_number({}, {})")


_SOURCE = (
    inspect.cleandoc(
        """
    // SPDX-License-Identifier: Apache-2.0
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
    void {name}(const estimator_emb::Rows* rows) {{
      estimator_emb::update_rows<Step>(rows, {slots});
    }}
    """
    )
    + "\n"
)
