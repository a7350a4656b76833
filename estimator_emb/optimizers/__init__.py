"""The optimizers of the TPU embedding hardware, each in its own file, listed in `_classes.py`.

A file has everything about its optimizer: the class in the legacy vocabulary, the slots with their
legacy names, and the rule. Five files also have a class in the TF2 vocabulary. A rule is a pure
function of TensorFlow tensors or NumPy arrays. `_step.py` adds limits and decay around every rule.
"""

import inspect
from typing import Any

from estimator_emb.optimizers import _classes
from estimator_emb.optimizers._classes import *  # noqa: F403
from estimator_emb.optimizers._parameters import NUMPY as NUMPY
from estimator_emb.optimizers._parameters import TENSORFLOW as TENSORFLOW
from estimator_emb.optimizers._parameters import OptimizationParameters
from estimator_emb.optimizers._step import gradient_limits as gradient_limits
from estimator_emb.optimizers._step import step as step
from estimator_emb.optimizers._tf2 import clipvalue_of
from estimator_emb.optimizers.adagrad import Adagrad
from estimator_emb.optimizers.adagrad_momentum import AdagradMomentum
from estimator_emb.optimizers.adam import Adam
from estimator_emb.optimizers.ftrl import FTRL
from estimator_emb.optimizers.sgd import SGD
from estimator_emb.reporting.program_calls import method_of_program

PARAMETERS: tuple[type[OptimizationParameters], ...] = tuple(
    value for name, value in vars(_classes).items() if not name.startswith("_")
)
"""All optimizer classes of the legacy vocabulary, sorted by name."""

TF2_OPTIMIZERS: tuple[type[OptimizationParameters], ...] = (
    SGD,
    Adagrad,
    AdagradMomentum,
    Adam,
    FTRL,
)
"""All optimizer classes of the TF2 vocabulary, each a subclass of its legacy class."""

for _one in (*PARAMETERS, *TF2_OPTIMIZERS):
    if "__init__" in vars(_one):
        method_of_program(_one, "__init__")


def tf2_class(optimizer: type[OptimizationParameters]) -> type[OptimizationParameters] | None:
    """Returns the TF2 vocabulary's class of the same optimizer, or None if it is missing."""
    return next((ours for ours in TF2_OPTIMIZERS if issubclass(ours, optimizer)), None)


def as_parameters(value: object, owner: str) -> OptimizationParameters:
    """Returns `from_tensorflow(value)`. Raises ValueError if `value` is not an optimizer."""
    if (translated := from_tensorflow(value)) is not None:
        return translated
    names = ", ".join(sorted(ours.__name__ for ours in (*PARAMETERS, *TF2_OPTIMIZERS)))
    raise ValueError(f"{owner}: optimization_parameters must be one of {names}; got {value!r}.")


def from_tensorflow(value: object) -> OptimizationParameters | None:
    """Returns our optimizer for an optimizer of ours or TensorFlow's, else None."""
    if isinstance(value, OptimizationParameters) and type(value) is not OptimizationParameters:
        return value
    theirs = name_in_tensorflow(value)
    for ours in (*PARAMETERS, *TF2_OPTIMIZERS):
        if theirs == ours.__name__:
            return translate(value, ours)
    return None


def name_in_tensorflow(value: object) -> str | None:
    """Returns the name of an object's class in `tensorflow.python.tpu`, or None."""
    for theirs in type(value).__mro__:
        if theirs.__module__.startswith("tensorflow.python.tpu."):
            return theirs.__name__
    return None


def translate(value: Any, ours: type[OptimizationParameters]) -> OptimizationParameters:
    """Creates an object of the class `ours` from the attributes of `value` with the same names.

    Keyword-only arguments exist only in our classes, and keep their defaults. `clipvalue` is
    computed from the two limits that TensorFlow stores instead.
    """
    arguments = list(inspect.signature(ours.__init__).parameters.values())[1:]
    fields: dict[str, Any] = {}
    for argument in arguments:
        if argument.name == "clipvalue":
            fields["clipvalue"] = clipvalue_of(value.clip_gradient_min, value.clip_gradient_max)
        elif argument.kind is not argument.KEYWORD_ONLY:
            fields[argument.name] = getattr(value, argument.name)
    return ours(**fields)
