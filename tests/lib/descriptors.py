"""The list of all optimizers, with example settings and the results `reference` computes for them.

Suites that test every optimizer iterate over `OPTIMIZERS`. `optimizers/test_rules.py` checks
the list against the optimizers that the package exports. Describe a new optimizer here and in
`golden.json`.
"""

import dataclasses
import functools
import json
import pathlib
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


def _read(entry):
    """Returns the optimizer of an entry of tests/data/optimizers.json, which has no tuples."""

    def named(key):
        found = entry.get(key, {}).items()
        return {name: tuple(one) if isinstance(one, list) else one for name, one in found}

    module = {"optimizers": optimizers, "embedding": embedding}[entry["module"]]
    parameters = getattr(module, entry["class"])(*entry["arguments"], **named("keywords"))
    start, around = tuple(entry["start"]), named("surroundings")
    return Optimizer(entry["name"], parameters, entry["formula"], start, around)


_FILE = pathlib.Path(__file__).parents[1] / "data" / "optimizers.json"
OPTIMIZERS = tuple(map(_read, json.loads(_FILE.read_text())))
_FTRL = {one.name: one for one in OPTIMIZERS}["ftrl"].hyper

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
