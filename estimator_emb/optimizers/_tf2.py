"""The base class of the TF2 optimizer classes, with arguments that legacy classes do not have."""

import inspect
import numbers
from collections.abc import Callable
from typing import Any

from estimator_emb.optimizers._parameters import OptimizationParameters, is_number
from estimator_emb.reporting.suggestions import check_argument

LearningRate = float | Callable[[], Any]
ClipValue = float | tuple[float | None, float | None]
SlotVariableCreation = Callable[[Any, list[str], list[Callable[..., Any]]], Any]
"""A function (table variable, slot names, slot initializers) -> {slot name: variable}."""


def clipvalue_of(low: float | None, high: float | None) -> ClipValue | None:
    """Returns the limits of the gradient as a `clipvalue`, or None if there is no limit."""
    return None if low is None and high is None else (low, high)


class TF2Optimizer(OptimizationParameters):
    """Base of the TF2 classes, which inherit slots and rule from a legacy class.

    Its arguments are the same as in `OptimizationParameters`, except:

    * `learning_rate`: a number >= 0, or a function without arguments that returns it as a number or
      a scalar tensor. The function is called once, in the graph of the training step. A number is
      the rate of all steps. A tensor is evaluated in each step.
    * `clipvalue` replaces the two limits of the gradient: a positive number c for (-c, c), or a
      tuple (min, max). A min or max of None means no limit. It needs `use_gradient_accumulation`.
    * `slot_variable_creation_fn`, for optimizers with slots: a function that creates their
      variables. It is called with the table's variable, the list of slot names, and a list of
      initializers, functions of a shape and a dtype. It returns {slot name: variable}, each a
      resource variable of the table's shape and dtype with any name. By default, the variables have
      the names in the docstring of the class.
    * `low_dimensional_packing_status`: a speed hint for the hardware. It does not change results.

    Raises:
      TypeError: a hyper-parameter that must be a number is not.
      ValueError: a number is not finite, `clipvalue` is invalid or given without
        `use_gradient_accumulation`, `clip_weight_min` exceeds `clip_weight_max`, or
        `slot_variable_creation_fn` is not a function.

    Source: `_Optimizer` of tensorflow/python/tpu/tpu_embedding_v2_utils.py, TF 2.15.1.
    """

    low_dimensional_packing_status: bool
    _clipvalue: ClipValue | None

    @property
    def clipvalue(self) -> ClipValue | None:
        return self._clipvalue

    def _compared(self) -> dict[str, Any]:
        return {**self.arguments(), "clipvalue": (self.clip_gradient_min, self.clip_gradient_max)}

    def _construct(self, arguments: dict[str, Any]) -> None:
        """Calls the constructor of the legacy class. `arguments` are the locals() of ours."""
        legacy_names = {name: legacy for legacy, name in self.renamed.items()}
        given = {legacy_names.get(name, name): value for name, value in arguments.items()}
        del given["self"]
        self._clipvalue = given.pop("clipvalue")
        self.low_dimensional_packing_status = bool(given.pop("low_dimensional_packing_status"))
        self.slot_variable_creation_fn = creation = given.pop("slot_variable_creation_fn", None)
        low, high = self._limits(self._clipvalue, given["use_gradient_accumulation"])
        super().__init__(**given, clip_gradient_min=low, clip_gradient_max=high)
        check_argument(
            type(self).__name__,
            creation is None or callable(creation),
            "slot_variable_creation_fn",
            "a function of (table, slot_names, slot_initializers) that returns {slot name: "
            "variable}, or None",
            creation,
        )

    def _limits(
        self, clipvalue: Any, use_gradient_accumulation: bool
    ) -> tuple[float | None, float | None]:
        limits: Any = (None, None)
        valid = True
        if isinstance(clipvalue, tuple):
            limits = clipvalue
            given = [limit for limit in limits if limit is not None]
            valid = len(limits) == 2 and all(map(is_number, given)) and given == sorted(given)
        elif clipvalue is not None:
            valid = is_number(clipvalue) and clipvalue > 0
            limits = (-clipvalue, clipvalue) if valid else limits
        allowed = (
            "a positive number, a tuple (min, max) with min <= max in which None means no limit, "
            "or None"
        )
        check_argument(type(self).__name__, valid, "clipvalue", allowed, clipvalue)
        if limits != (None, None) and not use_gradient_accumulation:
            raise ValueError(
                f"{type(self).__name__}: clipvalue needs use_gradient_accumulation=True; got "
                f"clipvalue={clipvalue!r} with use_gradient_accumulation="
                f"{use_gradient_accumulation!r}."
            )
        low, high = limits
        return low, high

    def _check_number(self, name: str) -> None:
        rate = self.learning_rate
        is_real = isinstance(rate, numbers.Real) and not isinstance(rate, bool)
        if name != "learning_rate" or is_real:
            super()._check_number(name)
        elif not callable(rate) or not _can_be_called_without_arguments(rate):
            raise TypeError(
                f"{type(self).__name__}: learning_rate must be a number or a function without "
                f"arguments; got {rate!r}."
            )


def _can_be_called_without_arguments(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    except ValueError:  # Some functions written in C have no signature.
        pass
    return True
