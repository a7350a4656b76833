"""The base class of all optimizers of the TPU embedding hardware, and types to describe them."""

import dataclasses
import inspect
import math as pymath
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.reporting import suggestions


@dataclasses.dataclass(frozen=True)
class Math:
    """The elementwise functions of an array library that a rule may use.

    A rule is written once, with these functions and Python's arithmetic operators. It runs on
    TensorFlow tensors in training, and on NumPy arrays in tests. It also generates native kernels.
    """

    sqrt: Callable[[Any], Any]
    pow: Callable[[Any, Any], Any]
    minimum: Callable[[Any, Any], Any]
    maximum: Callable[[Any, Any], Any]
    sign: Callable[[Any], Any]
    where: Callable[[Any, Any, Any], Any]
    divide_no_nan: Callable[[Any, Any], Any] | None = None  # If None, `quotient` uses `where`.

    def quotient(self, x: Any, y: Any) -> Any:
        """Returns x / y, or 0 where y is 0. y must not be negative."""
        if self.divide_no_nan is None:
            return x / self.where(y == 0, pymath.inf, y)
        return self.divide_no_nan(x, y)


# divide_no_nan, because `where` takes longer than the rest of Adagrad's rule.
TENSORFLOW = Math(tf.sqrt, tf.pow, tf.minimum, tf.maximum, tf.sign, tf.where, tf.math.divide_no_nan)
NUMPY = Math(np.sqrt, np.power, np.minimum, np.maximum, np.sign, np.where)

_NO_LIMIT = {
    "clip_weight_min": -pymath.inf,
    "clip_weight_max": pymath.inf,
    "clip_gradient_min": -pymath.inf,
    "clip_gradient_max": pymath.inf,
}
"""Name of a limit -> the infinity that means "no limit"."""

_RANGES: dict[str, Callable[[float], bool]] = {
    "positive": lambda value: value > 0,
    "at least 0": lambda value: value >= 0,
    "at most 0": lambda value: value <= 0,
    "in [0, 1)": lambda value: 0 <= value < 1,
}


def check_finite(owner: str, value: Any, allowed: float | None = None) -> None:
    """Raises ValueError if a number is NaN, or infinite in float32 and not `allowed`."""
    try:
        value = float(value)
    except OverflowError:  # An int too large for a float.
        value = pymath.inf if value > 0 else -pymath.inf
    if pymath.isnan(value):
        raise ValueError(f"{owner} must not be NaN.")
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    if pymath.isinf(rounded) and rounded != allowed:
        raise ValueError(f"{owner} must be finite in float32; got {value!r}.")


def is_number(value: Any) -> bool:
    """Returns whether a value is a real number, and neither a bool nor NaN."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and value == value


def check_not_negative(owner: str, value: Any) -> None:
    """Raises ValueError if a number is negative. `owner` is its name in the message."""
    if value < 0:
        raise ValueError(f"{owner} must not be negative; got {value!r}.")


@dataclasses.dataclass(frozen=True)
class Slot:
    """A value that an optimizer keeps for every element of a table."""

    name: str  # In the load and retrieve ops and in the TF2 vocabulary, e.g. `accumulators`.
    suffix: str  # Appended to the table's variable name in legacy checkpoints, e.g. `/Adagrad`.
    initial: float | str = 0.0  # A str names the constructor argument with the value.
    legacy_name: str = ""  # In `AdagradSlotVariables` and similar classes. '' means `name`.


@dataclasses.dataclass(frozen=True)
class Hardware:
    """An optimizer's names in the TPU embedding hardware.

    The arguments of the ops `LoadTPUEmbedding<name>Parameters` and
    `RetrieveTPUEmbedding<name>Parameters` are `parameters`, the weights, and then the slots in the
    optimizer's order.
    """

    name: str
    message: str  # Its field in `OptimizationParameters` of optimization_parameters.proto.
    # Field of the optimizer's message -> our attribute with another name.
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)


class OptimizationParameters:
    """The base of the legacy `...Parameters` classes: their common arguments and behaviour.

    Objects print as their constructor call, compare by value, copy and pickle.

    Args:
      learning_rate: step size, a number >= 0. Rounded to float32 like every hyper-parameter, as in
        the hardware.
      use_gradient_accumulation: True sums all gradients of a row over the whole batch before one
        update. False runs an update for each core whose part of the batch contains the row. With
        a single core, both are the same.
      clip_weight_min, clip_weight_max: limits of a row's weights after its update. None means no
        limit.
      weight_decay_factor: fraction of its weights that a row loses before it is updated. None means
        no decay.
      multiply_weight_decay_factor_by_learning_rate: True makes that fraction
        `weight_decay_factor * learning_rate`.
      clip_gradient_min, clip_gradient_max: limits of a row's summed gradient. None means no limit.
        They need `use_gradient_accumulation`.

    Raises:
      TypeError: a hyper-parameter that must be a number is not.
      ValueError: a number is not finite (a limit may be the infinity that means no limit),
        `learning_rate` is negative, a lower limit exceeds its upper limit, or a gradient limit is
        given with `use_gradient_accumulation=False`.

    Source: `_OptimizationParameters` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1.
    """

    slots: tuple[Slot, ...] = ()  # In the order of `update`.
    hardware: Hardware
    updates_untouched_rows = False  # True if a step also changes rows that are not in the batch.
    required_dimension: int | None = None  # The only dimension that a table may have, if any.
    # The program's function that creates slot variables, if given to a TF2 class.
    slot_variable_creation_fn: Callable[..., Any] | None = None
    # Argument that changes the operations of the rule -> a value for each form of the rule. Wheels
    # contain kernels for each form. A number changes the operations only if a root replaces its
    # power, or if the rule omits a part for it.
    forms: Mapping[str, tuple[Any, ...]] = {}
    # Argument -> the range that its value must be in, a key of `_RANGES`.
    ranges: Mapping[str, str] = {}
    # Argument of the legacy class -> its name in the TF2 class, if they differ.
    renamed: Mapping[str, str] = {}

    learning_rate: float | Callable[[], Any]
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def __init__(
        self,
        learning_rate: float,
        use_gradient_accumulation: bool = True,
        clip_weight_min: float | None = None,
        clip_weight_max: float | None = None,
        weight_decay_factor: float | None = None,
        multiply_weight_decay_factor_by_learning_rate: bool | None = None,
        clip_gradient_min: float | None = None,
        clip_gradient_max: float | None = None,
    ):
        given = locals()
        del given["self"]
        vars(self).update(given)
        self.__post_init__()

    def __post_init__(self) -> None:
        self._check_number("learning_rate")
        for name in ("weight_decay_factor", *_NO_LIMIT):
            if getattr(self, name) is not None:
                self._check_number(name)
        for name, field in getattr(self, "__dataclass_fields__", {}).items():
            if field.type is float:
                self._check_number(name)
        for of in ("weight", "gradient"):
            low, high = getattr(self, f"clip_{of}_min"), getattr(self, f"clip_{of}_max")
            if low is not None and high is not None and low > high:
                raise ValueError(
                    f"{type(self).__name__}: clip_{of}_min must not exceed clip_{of}_max; got "
                    f"{low} and {high}."
                )
        limits = (self.clip_gradient_min, self.clip_gradient_max)
        if not self.use_gradient_accumulation and limits != (None, None):
            raise ValueError(
                f"{type(self).__name__}: clip_gradient_min and clip_gradient_max need "
                f"use_gradient_accumulation=True; got {limits[0]} and {limits[1]} with "
                f"use_gradient_accumulation={self.use_gradient_accumulation}."
            )

        for name, allowed in self.ranges.items():
            value, shown = getattr(self, name), self.renamed.get(name, name)
            suggestions.check_argument(
                type(self).__name__, _RANGES[allowed](value), shown, allowed, value
            )

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        """Returns rows of the table and of the slots after a step of the optimizer.

        Args:
          math: the array library of the rows.
          lr: learning rate, float32 scalar.
          g: summed, clipped gradient of each row, float32 [rows, dimension].
          w: weights of the rows, with the shape and dtype of `g`.
          *slots: each slot of the rows, likewise, in the order of `self.slots`.

        Returns:
          `(w, *slots)` after the step, in the same shapes.
        """
        raise NotImplementedError

    def initial_value(self, slot: Slot) -> float:
        if isinstance(slot.initial, str):
            return float(getattr(self, slot.initial))
        return slot.initial

    def rounded(self, *names: str) -> list[float]:
        """Returns hyper-parameters by name, rounded to float32 as in the hardware."""
        return [float(np.float32(getattr(self, name))) for name in names]

    def arguments(self) -> dict[str, Any]:
        signature = inspect.signature(type(self).__init__)
        return {name: getattr(self, name) for name in list(signature.parameters)[1:]}

    def _compared(self) -> dict[str, Any]:
        return self.arguments()

    def _check_number(self, name: str) -> None:
        value = getattr(self, name)
        owner = f"{type(self).__name__}: {self.renamed.get(name, name)}"
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise TypeError(f"{owner} must be a number; got {value!r}.")
        check_finite(owner, value, _NO_LIMIT.get(name))
        if name == "learning_rate":
            check_not_negative(owner, value)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments().items())
        return f"{type(self).__name__}({given})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self._compared() == other._compared()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((type(self), tuple(self._compared().items())))
