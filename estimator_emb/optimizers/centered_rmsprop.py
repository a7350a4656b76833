"""RMSProp that divides by the deviation of the gradient from its own mean.

    ms  <- ms + (g * g - ms) * (1 - rho)
    mg  <- mg + (g - mg) * (1 - rho)
    mom <- momentum * mom + lr * g / sqrt(ms - mg * mg + epsilon)
    w   <- w - mom

ms - mg * mg estimates a variance, and is never negative in exact arithmetic. In float32 it can be
negative if the gradient hardly varies, so epsilon must outweigh the rounding error of ms.
"""

import dataclasses
from typing import Any

from estimator_emb.optimizers._parameters import Hardware, Math, OptimizationParameters, Slot


@dataclasses.dataclass(eq=False, repr=False)
class CenteredRMSPropParameters(OptimizationParameters):
    """Centered RMSProp for embedding tables. Its slots ms, mom and mg start from 0.

    The hardware knows this optimizer, but TensorFlow never had a Python class for it. Argument
    order, defaults and the names `<table>/CenteredRMSProp/ms`, `.../mom` and `.../mg` are therefore
    ours. They follow `RMSPropParameters`.

    For arguments not listed below, see `OptimizationParameters`.

    Args:
      learning_rate: step size.
      rho: decay of ms and mg. Any number.
      momentum: decay of mom. Any number.
      epsilon: added inside the root. Any number. With 0, a row becomes NaN if all its gradients
        were 0.

    Source: `CenteredRmsPropParameters` of optimization_parameters.proto and
    LoadTPUEmbeddingCenteredRMSPropParameters, TF 2.15.1; rule: `functor::ApplyCenteredRMSProp` of
    tensorflow/core/kernels/training_ops.cc, to which the proto refers.
    """

    hardware = Hardware("CenteredRMSProp", "centered_rms_prop")
    slots = (
        Slot("ms", "/CenteredRMSProp/ms"),
        Slot("mom", "/CenteredRMSProp/mom"),
        Slot("mg", "/CenteredRMSProp/mg"),
    )

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

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        ms, mom, mg = slots
        rho, momentum, epsilon = self.rounded("rho", "momentum", "epsilon")
        ms = ms + (g * g - ms) * (1 - rho)
        mg = mg + (g - mg) * (1 - rho)
        mom = momentum * mom + (lr * g) / math.sqrt(ms - mg * mg + epsilon)
        return w - mom, ms, mom, mg
