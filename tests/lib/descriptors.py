"""The list of all optimizers, with example settings and the results `reference` computes for them.

Suites that test every optimizer iterate over `OPTIMIZERS`. `optimizers/test_descriptors.py` checks
the list against the optimizers that the package exports. Describe a new optimizer here and in
`golden.json`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import reference

from estimator_emb import embedding, optimizers

_ALL = {
    "Sgd": (optimizers.StochasticGradientDescentParameters, embedding.SGD, reference.sgd),
    "Adagrad": (optimizers.AdagradParameters, embedding.Adagrad, reference.adagrad),
    "AdagradMomentum": (
        optimizers.AdagradMomentumParameters,
        embedding.AdagradMomentum,
        reference.adagrad_momentum,
    ),
    "Adam": (optimizers.AdamParameters, embedding.Adam, reference.adam),
    "Ftrl": (optimizers.FtrlParameters, embedding.FTRL, reference.ftrl),
    "Momentum": (optimizers.MomentumParameters, None, reference.momentum),
    "RmsProp": (optimizers.RMSPropParameters, None, reference.rmsprop),
    "CenteredRmsProp": (optimizers.CenteredRMSPropParameters, None, reference.centered_rmsprop),
    "Adadelta": (optimizers.AdadeltaParameters, None, reference.adadelta),
    "ProximalAdagrad": (optimizers.ProximalAdagradParameters, None, reference.proximal_adagrad),
    "ProximalYogi": (optimizers.ProximalYogiParameters, None, reference.proximal_yogi),
    "FrequencyEstimator": (
        optimizers.FrequencyEstimatorParameters,
        None,
        reference.frequency_estimator,
    ),
}
"""Optimizer of a case in golden.json -> (class, class of the TF2 vocabulary, formula)."""

GOLDEN_CLASSES = {name: legacy for name, (legacy, _, _) in _ALL.items()}
TF2_GOLDEN_CLASSES = {name: tf2 for name, (_, tf2, _) in _ALL.items() if tf2}
RULES = {cls: rule for *classes, rule in _ALL.values() for cls in classes if cls}
"""Class -> formula."""


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """An optimizer and the arguments for computing its expected results.

    Attributes:
      name: unique; used in the ids of tests.
      parameters: the package's object.
      hyper: arguments of the formula. Not read from `parameters`, because that may be wrong.
      start: initial value of each slot, in slot order. Not read from `parameters` either.
      surroundings: arguments of `reference.step` that apply around the formula.
    """

    name: str
    parameters: Any
    hyper: Mapping[str, Any]
    start: tuple[float, ...] = ()
    surroundings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def rule(self) -> Callable[..., Any]:
        return RULES[type(self.parameters)]

    def step(self, lr: Any, g: Any, w: Any, slots: Any) -> tuple[np.ndarray, ...]:
        """Returns the new weights and slots of rows, in float64."""
        arrays = [np.asarray(one, np.float64) for one in (g, w, *slots)]
        return reference.step(
            self.rule, float(lr), *arrays[:2], arrays[2:], **self.hyper, **self.surroundings
        )


_FTRL = {
    "learning_rate_power": -0.5,
    "l1": 0,
    "l2": 0,
    "beta": 0,
    "multiply_linear_by_learning_rate": False,
}
_ADAM = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "sum_inside_sqrt": True}
_ADAGRAD_MOMENTUM = {
    "momentum": 0.9,
    "use_nesterov": False,
    "exponent": 2,
    "beta2": 1,
    "epsilon": 1e-10,
}

OPTIMIZERS = (
    Optimizer("sgd", optimizers.StochasticGradientDescentParameters(0.1), {}),
    Optimizer("adagrad", optimizers.AdagradParameters(0.1, 0.2), {}, (0.2,)),
    Optimizer(
        "adagrad_momentum",
        optimizers.AdagradMomentumParameters(0.1, 0.9),
        _ADAGRAD_MOMENTUM,
        (0, 0),
    ),
    Optimizer(
        "adagrad_momentum_nesterov",
        optimizers.AdagradMomentumParameters(0.1, 0.9, True, 3, 0.9, 0.1),
        {"momentum": 0.9, "use_nesterov": True, "exponent": 3, "beta2": 0.9, "epsilon": 0.1},
        (0, 0),
    ),
    Optimizer("adam", optimizers.AdamParameters(0.1), _ADAM, (0, 0)),
    Optimizer(
        "adam_outside",
        optimizers.AdamParameters(0.1, 0.8, 0.9, 0.01, sum_inside_sqrt=False),
        {"beta1": 0.8, "beta2": 0.9, "epsilon": 0.01, "sum_inside_sqrt": False},
        (0, 0),
    ),
    Optimizer("ftrl", optimizers.FtrlParameters(0.1), _FTRL, (0.1, 0)),
    Optimizer(
        "ftrl_zero",
        optimizers.FtrlParameters(0.1, initial_accumulator_value=0.0),
        _FTRL,
        (0, 0),
    ),
    Optimizer(
        "ftrl_multiplied",
        optimizers.FtrlParameters(
            0.1,
            learning_rate_power=-0.3,
            l2_regularization_strength=0.1,
            multiply_linear_by_learning_rate=True,
        ),
        {**_FTRL, "learning_rate_power": -0.3, "l2": 0.1, "multiply_linear_by_learning_rate": True},
        (0.1, 0),
    ),
    Optimizer(
        "ftrl_regularized",
        optimizers.FtrlParameters(0.1, -0.5, 0.3, 0.2, 0.3, beta=1.0),
        {**_FTRL, "l1": 0.2, "l2": 0.3, "beta": 1.0},
        (0.3, 0),
    ),
    Optimizer(
        "momentum",
        optimizers.MomentumParameters(0.1, 0.9),
        {"momentum": 0.9, "use_nesterov": False},
        (0,),
    ),
    Optimizer(
        "momentum_nesterov",
        optimizers.MomentumParameters(0.1, 0.9, True),
        {"momentum": 0.9, "use_nesterov": True},
        (0,),
    ),
    Optimizer(
        "rmsprop",
        optimizers.RMSPropParameters(0.1, 0.9, 0.8, 1e-3, initial_ms=0.5),
        {"rho": 0.9, "momentum": 0.8, "epsilon": 1e-3},
        (0.5, 0),
    ),
    Optimizer(
        "centered_rmsprop",
        optimizers.CenteredRMSPropParameters(0.1, 0.9, 0.8, 0.01),
        {"rho": 0.9, "momentum": 0.8, "epsilon": 0.01},
        (0, 0, 0),
    ),
    Optimizer(
        "adadelta",
        optimizers.AdadeltaParameters(0.5, 0.95, 1e-3),
        {"rho": 0.95, "epsilon": 1e-3},
        (0, 0),
    ),
    Optimizer(
        "proximal_adagrad",
        optimizers.ProximalAdagradParameters(0.1, 0.2, 0.01, 0.02),
        {"l1": 0.01, "l2": 0.02},
        (0.2,),
    ),
    Optimizer(
        "proximal_adagrad_plain",
        optimizers.ProximalAdagradParameters(0.1, 0.2),
        {"l1": 0, "l2": 0},
        (0.2,),
    ),
    Optimizer(
        "proximal_yogi",
        optimizers.ProximalYogiParameters(0.1, l1_regularization_strength=0.05),
        {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-3, "l1": 0.05, "l2": 0.0},
        (1e-6, 0),
    ),
    Optimizer(
        "frequency_estimator",
        optimizers.FrequencyEstimatorParameters(0.1, 50.0, 3.0, 1.0),
        {"tau": 0.1, "max_delta": 50.0, "outlier_threshold": 3.0},
        (0,),
    ),
    Optimizer(
        "tf2_sgd",
        embedding.SGD(0.1, clipvalue=(None, 0.5)),
        {},
        surroundings={"clip_gradient": (None, 0.5)},
    ),
    Optimizer(
        "tf2_adagrad",
        embedding.Adagrad(0.1, weight_decay_factor=0.1),
        {},
        (0.1,),
        surroundings={"weight_decay_factor": 0.1},
    ),
    Optimizer(
        "tf2_adagrad_momentum",
        embedding.AdagradMomentum(0.1, momentum=0.8),
        {**_ADAGRAD_MOMENTUM, "momentum": 0.8},
        (0, 0),
    ),
    Optimizer(
        "tf2_adam",
        embedding.Adam(0.1, clip_weight_max=0.5),
        {**_ADAM, "epsilon": 1e-7},
        (0, 0),
        surroundings={"clip_weight": (None, 0.5)},
    ),
    Optimizer(
        "tf2_ftrl",
        embedding.FTRL(0.1, l2_regularization_strength=0.1),
        {**_FTRL, "l2": 0.1},
        (0.1, 0),
    ),
)

_SURROUNDINGS = {
    "clip": {"clip_gradient": (-0.5, 0.75)},
    "clip_one_side": {"clip_gradient": (None, 0.25), "clip_weight": (-0.5, None)},
    "decay": {"weight_decay_factor": 0.125, "clip_weight": (-1.0, 0.5)},
    "decay_by_rate": {
        "weight_decay_factor": 0.5,
        "multiply_weight_decay_factor_by_learning_rate": True,
    },
}


def arguments(surroundings):
    """Converts `surroundings` to the argument names of the optimizer classes."""
    given = dict(surroundings)
    for limit in ("clip_gradient", "clip_weight"):
        low, high = given.pop(limit, (None, None))
        given |= {f"{limit}_min": low, f"{limit}_max": high}
    return given


SURROUNDED = tuple(
    Optimizer(f"{name}_{key}", make(**arguments(around)), hyper, start, around)
    for key, around in _SURROUNDINGS.items()
    for name, make, hyper, start in (
        ("adagrad", functools.partial(optimizers.AdagradParameters, 0.25, 0.2), {}, (0.2,)),
        (
            "ftrl",
            functools.partial(optimizers.FtrlParameters, 0.25, l1_regularization_strength=0.01),
            {**_FTRL, "l1": 0.01},
            (0.1, 0),
        ),
    )
)
"""Clipping and decay around a formula. All optimizers share this code, so two are enough."""
