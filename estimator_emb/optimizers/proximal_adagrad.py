"""Adagrad, followed by a proximal step for L1 and L2 regularization.

    a <- a + g * g
    e =  lr / sqrt(a)
    p =  w - e * g
    w <- sign(p) * max(|p| - e * l1, 0) / (1 + l2 * e)        l1 > 0
    w <- p / (1 + l2 * e)                                     l1 = 0

The step divides by the root of the new a, without an epsilon. A positive initial accumulator keeps
the first step finite. TensorFlow treats a number below 1.2e-38 as 0. Where a is 0, e is 0 too.
"""

import dataclasses
from typing import Any

from estimator_emb.optimizers._parameters import Hardware, Math, OptimizationParameters, Slot


@dataclasses.dataclass(eq=False, repr=False)
class ProximalAdagradParameters(OptimizationParameters):
    """Proximal Adagrad for embedding tables. Its slot a is saved as `<table>/ProximalAdagrad`.

    For arguments not listed below, see `OptimizationParameters`.

    Args:
      learning_rate: step size.
      initial_accumulator: start of every accumulator, > 0.
      l1_regularization_strength: `l1` above, >= 0.
      l2_regularization_strength: `l2` above, >= 0.

    Raises:
      ValueError: `initial_accumulator` is not positive, or a strength is negative.

    Source: `ProximalAdagradParameters` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1; rule:
    `functor::ApplyProximalAdagrad` of tensorflow/core/kernels/training_ops.cc, to which
    optimization_parameters.proto refers.
    """

    hardware = Hardware(
        "ProximalAdagrad",
        "proximal_adagrad",
        {"l1": "l1_regularization_strength", "l2": "l2_regularization_strength"},
    )
    slots = (Slot("accumulators", "/ProximalAdagrad", "initial_accumulator", "accumulator"),)
    ranges = {
        "initial_accumulator": "positive",
        "l1_regularization_strength": "at least 0",
        "l2_regularization_strength": "at least 0",
    }
    forms = {"l1_regularization_strength": (0.0, 0.1)}

    learning_rate: float
    initial_accumulator: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        (a,) = slots
        l1, l2 = self.rounded("l1_regularization_strength", "l2_regularization_strength")
        a = a + g * g
        e = math.quotient(lr, math.sqrt(a))  # This is 0 where a is 0.
        p = w - e * g
        if l1 > 0:
            p = math.sign(p) * math.maximum(math.maximum(p, -p) - e * l1, 0.0)
        return p / (1 + l2 * e), a
