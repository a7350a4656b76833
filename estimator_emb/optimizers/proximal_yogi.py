"""Yogi followed by a proximal step for L1 and L2 regularization, without bias correction.

    m <- beta1 * m + (1 - beta1) * g
    v <- v + (1 - beta2) * sign(g * g - v) * g * g
    e =  lr / (sqrt(v) + epsilon)
    p =  w - e * m
    w <- sign(p) * max(|p| - e * l1, 0) / (1 + l2 * e)        l1 > 0
    w <- p / (1 + l2 * e)                                     l1 = 0

The hardware's rule is not published. optimization_parameters.proto says only that it is Yogi
(Algorithm 2 of the paper) without bias correction, with extensions from FTRL. The rule above is our
reading: `tfa.optimizers.Yogi`, with the same defaults, but without its bias correction.
"""

import dataclasses
from typing import Any

from estimator_emb.optimizers._parameters import Hardware, Math, OptimizationParameters, Slot


@dataclasses.dataclass(eq=False, repr=False)
class ProximalYogiParameters(OptimizationParameters):
    """Proximal Yogi for embedding tables.

    Its slots v and m are saved as `<table>/ProximalYogi` and `<table>/ProximalYogi_1`. m starts
    from 0.

    For arguments not listed below, see `OptimizationParameters`.

    Args:
      learning_rate: step size.
      beta1: decay of m, in [0, 1).
      beta2: in [0, 1). v follows g * g at the rate 1 - beta2.
      epsilon: added to the root, > 0.
      l1_regularization_strength: `l1` above, >= 0.
      l2_regularization_strength: `l2` above, >= 0.
      initial_accumulator_value: start of every v. Any number. A negative start soon gives NaN.

    Raises:
      ValueError: a beta is outside [0, 1), epsilon is not positive, or a strength is negative.

    Source: `ProximalYogiParameters` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1; rule:
    ours, as the top of this file says.
    """

    hardware = Hardware(
        "ProximalYogi",
        "proximal_yogi",
        {"l1": "l1_regularization_strength", "l2": "l2_regularization_strength"},
    )
    slots = (
        Slot("v", "/ProximalYogi", "initial_accumulator_value"),
        Slot("m", "/ProximalYogi_1"),
    )
    ranges = {
        "beta1": "in [0, 1)",
        "beta2": "in [0, 1)",
        "epsilon": "positive",
        "l1_regularization_strength": "at least 0",
        "l2_regularization_strength": "at least 0",
    }
    forms = {"l1_regularization_strength": (0.0, 0.1)}

    learning_rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-3
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    initial_accumulator_value: float = 1e-6
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        v, m = slots
        beta1, beta2, epsilon = self.rounded("beta1", "beta2", "epsilon")
        l1, l2 = self.rounded("l1_regularization_strength", "l2_regularization_strength")
        m = beta1 * m + (1 - beta1) * g
        v = v + ((1 - beta2) * math.sign(g * g - v) * g) * g
        e = lr / (math.sqrt(v) + epsilon)
        p = w - e * m
        if l1 > 0:
            p = math.sign(p) * math.maximum(math.maximum(p, -p) - e * l1, 0.0)
        return p / (1 + l2 * e), v, m
