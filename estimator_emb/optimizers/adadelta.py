"""Adadelta.

    a <- rho * a + (1 - rho) * g * g
    d =  sqrt(u + epsilon) / sqrt(a + epsilon) * g
    w <- w - lr * d
    u <- rho * u + (1 - rho) * d * d

d reads the new a and the old u.
"""

import dataclasses
from typing import Any

from estimator_emb.optimizers._parameters import Hardware, Math, OptimizationParameters, Slot


@dataclasses.dataclass(eq=False, repr=False)
class AdadeltaParameters(OptimizationParameters):
    """Adadelta for embedding tables. Its slots are a and u, both starting from 0.

    The hardware knows this optimizer, but TensorFlow never had a Python class for it. Argument
    order, defaults and the names `<table>/Adadelta/accumulators` and `<table>/Adadelta/updates` are
    therefore ours. They follow the load and retrieve ops.

    For arguments not listed below, see `OptimizationParameters`.

    Args:
      learning_rate: step size. 1 is the method as published.
      rho: decay of a and u. Any number.
      epsilon: added inside both roots. Any number. With 0, a row stays where it is or becomes NaN.

    Source: `AdadeltaParameters` of optimization_parameters.proto and
    LoadTPUEmbeddingAdadeltaParameters, TF 2.15.1; rule: `functor::ApplyAdadelta` of
    tensorflow/core/kernels/training_ops.cc, to which the proto refers.
    """

    hardware = Hardware("Adadelta", "adadelta")
    slots = (
        Slot("accumulators", "/Adadelta/accumulators"),
        Slot("updates", "/Adadelta/updates"),
    )

    learning_rate: float
    rho: float
    epsilon: float
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        a, u = slots
        rho, epsilon = self.rounded("rho", "epsilon")
        a = rho * a + ((1 - rho) * g) * g
        d = math.sqrt(u + epsilon) / math.sqrt(a + epsilon) * g
        u = rho * u + ((1 - rho) * d) * d
        return w - lr * d, a, u
