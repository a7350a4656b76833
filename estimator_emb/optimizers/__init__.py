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
from estimator_emb.optimizers.adadelta import AdadeltaParameters
from estimator_emb.optimizers.adagrad import AdagradParameters
from estimator_emb.optimizers.adagrad_momentum import AdagradMomentumParameters
from estimator_emb.optimizers.adam import AdamParameters
from estimator_emb.optimizers.centered_rmsprop import CenteredRMSPropParameters
from estimator_emb.optimizers.frequency_estimator import FrequencyEstimatorParameters
from estimator_emb.optimizers.ftrl import FtrlParameters
from estimator_emb.optimizers.mdl_adagrad_light import MdlAdagradLightParameters
from estimator_emb.optimizers.momentum import MomentumParameters
from estimator_emb.optimizers.proximal_adagrad import ProximalAdagradParameters
from estimator_emb.optimizers.proximal_yogi import ProximalYogiParameters
from estimator_emb.optimizers.rmsprop import RMSPropParameters
from estimator_emb.optimizers.sgd import StochasticGradientDescentParameters

PARAMETERS: tuple[type[OptimizationParameters], ...] = (
    AdadeltaParameters,
    AdagradParameters,
    AdagradMomentumParameters,
    AdamParameters,
    CenteredRMSPropParameters,
    FrequencyEstimatorParameters,
    FtrlParameters,
    MomentumParameters,
    ProximalAdagradParameters,
    ProximalYogiParameters,
    RMSPropParameters,
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
    """Builds an `ours` from an object whose attributes carry the names of its arguments.

    Keyword-only arguments are additions of ours, which `value` does not have: they keep their
    defaults.
    """
    arguments = list(inspect.signature(ours.__init__).parameters.values())[1:]
    return ours(
        **{a.name: getattr(value, a.name) for a in arguments if a.kind is not a.KEYWORD_ONLY}
    )


__all__ = [
    "AdadeltaParameters",
    "AdagradMomentumParameters",
    "AdagradParameters",
    "AdamParameters",
    "CenteredRMSPropParameters",
    "FrequencyEstimatorParameters",
    "FtrlParameters",
    "Math",
    "MdlAdagradLightParameters",
    "MomentumParameters",
    "NUMPY",
    "OptimizationParameters",
    "PARAMETERS",
    "ProximalAdagradParameters",
    "ProximalYogiParameters",
    "RMSPropParameters",
    "Slot",
    "StochasticGradientDescentParameters",
    "TENSORFLOW",
    "as_parameters",
    "step",
]
