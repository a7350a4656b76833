# SPDX-License-Identifier: Apache-2.0
"""The optimizers of the TPU embedding hardware, one file each.

A file says everything about its optimizer: arguments, slots and their legacy names, and one pure
update rule that runs on TensorFlow tensors and NumPy arrays alike. `_step.py` holds what surrounds
every rule.
"""

import inspect

from estimator_emb.optimizers._math import NUMPY, TENSORFLOW, Math
from estimator_emb.optimizers._parameters import OptimizationParameters, Slot
from estimator_emb.optimizers._step import step
from estimator_emb.optimizers.adagrad import AdagradParameters
from estimator_emb.optimizers.adam import AdamParameters
from estimator_emb.optimizers.sgd import StochasticGradientDescentParameters

PARAMETERS: tuple[type[OptimizationParameters], ...] = (
    AdagradParameters,
    AdamParameters,
    StochasticGradientDescentParameters,
)
"""Every optimizer class, the ones that `optimization_parameters` accepts."""


def as_parameters(value: object, owner: str) -> OptimizationParameters:
    """`value` as one of our classes; TensorFlow's own class of the same name is translated.

    Args:
      value: an object of a class in `PARAMETERS`, or of TensorFlow 2.15's class of that name.
      owner: whose `optimization_parameters` this is, for the error message.

    Raises:
      ValueError: the class is none of these.
    """
    if isinstance(value, OptimizationParameters):
        return value
    for ours in PARAMETERS:
        theirs = type(value)
        if theirs.__name__ == ours.__name__ and theirs.__module__.startswith("tensorflow."):
            return translate(value, ours)
    names = ", ".join(sorted(ours.__name__ for ours in PARAMETERS))
    raise ValueError(
        f"{owner}: optimization_parameters must be one of {names}; got {value!r}."
    )


def translate(value: object, ours: type[OptimizationParameters]) -> OptimizationParameters:
    """Builds an `ours` from an object whose attributes carry the names of its arguments."""
    names = list(inspect.signature(ours.__init__).parameters)[1:]
    return ours(**{name: getattr(value, name) for name in names})


__all__ = [
    "AdagradParameters",
    "AdamParameters",
    "Math",
    "NUMPY",
    "OptimizationParameters",
    "PARAMETERS",
    "Slot",
    "StochasticGradientDescentParameters",
    "TENSORFLOW",
    "as_parameters",
    "step",
]
