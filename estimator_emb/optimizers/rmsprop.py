"""RMSProp with momentum.

    ms  <- ms + (g * g - ms) * (1 - rho)
    mom <- momentum * mom + lr * g / sqrt(ms + epsilon)
    w   <- w - mom

epsilon is inside the root. mom contains the learning rates of past steps.
"""

import dataclasses
from typing import Any

from estimator_emb.optimizers._parameters import Hardware, Math, OptimizationParameters, Slot


@dataclasses.dataclass(eq=False, repr=False)
class RMSPropParameters(OptimizationParameters):
    """RMSProp for embedding tables.

    Its slots ms and mom are saved as `<table>/RMSProp/ms` and `<table>/RMSProp/mom`. mom starts
    from 0.

    For arguments not listed below, see `OptimizationParameters`.

    Args:
      learning_rate: step size.
      rho: decay of ms. Any number.
      momentum: decay of mom. Any number.
      epsilon: added to ms inside the root. Any number. With 0, a row becomes NaN if all its
        gradients were 0.
      initial_ms: start of every ms. `tf.compat.v1.train.RMSPropOptimizer` starts from 1. The TPU
        classes start from 0 and have no such argument, so it is keyword-only.

    Source: `RMSPropParameters` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1; rule:
    `functor::ApplyRMSProp` of tensorflow/core/kernels/training_ops.cc, to which
    optimization_parameters.proto refers.
    """

    hardware = Hardware("RMSProp", "rms_prop")
    slots = (Slot("ms", "/RMSProp/ms", "initial_ms"), Slot("mom", "/RMSProp/mom"))

    learning_rate: float
    rho: float
    momentum: float
    epsilon: float
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None
    initial_ms: float = dataclasses.field(default=0.0, kw_only=True)

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        ms, mom = slots
        rho, momentum, epsilon = self.rounded("rho", "momentum", "epsilon")
        ms = ms + (g * g - ms) * (1 - rho)
        mom = momentum * mom + (lr * g) / math.sqrt(ms + epsilon)
        return w - mom, ms, mom
