"""Momentum, plain or Nesterov's.

    m <- momentum * m + g
    w <- w - lr * m                              use_nesterov=False
    w <- w - (lr * g + lr * momentum * m)        use_nesterov=True

m does not contain the learning rate, so a new rate applies to the whole step at once. In Keras's
SGD, the momentum contains the rates of past steps. Nesterov's form reads the new m.
"""

import dataclasses
from typing import Any

from estimator_emb.optimizers._parameters import Hardware, Math, OptimizationParameters, Slot


@dataclasses.dataclass(eq=False, repr=False)
class MomentumParameters(OptimizationParameters):
    """Momentum for embedding tables.

    Its slot m is saved as `<table>/Momentum` and starts from 0.

    For arguments not listed below, see `OptimizationParameters`.

    Args:
      learning_rate: step size.
      momentum: decay of m. Any number. 0 makes this gradient descent.
      use_nesterov: True selects Nesterov's step, the second of the two above.

    Source: `MomentumParameters` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1; rule:
    `functor::ApplyMomentum` of tensorflow/core/kernels/training_ops.cc, to which
    optimization_parameters.proto refers.
    """

    hardware = Hardware("Momentum", "momentum")
    slots = (Slot("momenta", "/Momentum"),)
    forms = {"use_nesterov": (False, True)}

    learning_rate: float
    momentum: float
    use_nesterov: bool = False
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        (m,) = slots
        (momentum,) = self.rounded("momentum")
        m = momentum * m + g
        if self.use_nesterov:
            return w - (lr * g + (lr * momentum) * m), m
        return w - lr * m, m
