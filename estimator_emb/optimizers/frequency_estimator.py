"""A frequency estimator: it estimates how many steps pass between two lookups of a row.

With t the number of the step, c a clipped distance, D the table's only column and L the step of the
row's last lookup:

    delta = t - L
    c     = min(delta, max_delta)
    D <- c                               delta >= outlier_threshold * D
    D <- D * (1 - tau) + c * tau         otherwise
    L <- t

t arrives as the learning rate: the table's `learning_rate_fn` must return the global step as a
float32. Gradients are ignored. The table's initializer should start D from max_delta.
"""

import dataclasses
from typing import Any

from estimator_emb.optimizers._parameters import Hardware, Math, OptimizationParameters, Slot


@dataclasses.dataclass(eq=False, repr=False)
class FrequencyEstimatorParameters(OptimizationParameters):
    """A frequency estimator for embedding tables of dimension 1. It trains nothing.

    Its slot, `L` above, is saved as `<table>/FrequencyEstimator` and starts from 0. The learning
    rate is fixed to 1.0. Gradients are always accumulated, and never clipped. Weights are never
    clipped or decayed.

    Args:
      tau: share of a new distance in the estimate, between 0 and 1. Any number is accepted.
      max_delta: upper limit of a distance, in steps.
      outlier_threshold: a distance of at least this many times the estimate replaces the estimate.
      weight_exponent: given to the hardware, and without effect elsewhere. The proto says that it
        makes a weight (delta / max_delta)^weight_exponent of a distance, but not where the
        hardware uses that weight.

    Source: `FrequencyEstimatorParameters` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1;
    rule: the comment on `FrequencyEstimatorParameters` of optimization_parameters.proto.
    """

    hardware = Hardware("FrequencyEstimator", "frequency_estimator")
    slots = (Slot("last_hit_step", "/FrequencyEstimator"),)
    required_dimension = 1

    learning_rate = 1.0
    tau: float
    max_delta: float
    outlier_threshold: float
    weight_exponent: float

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        (last_hit_step,) = slots
        tau, max_delta, threshold = self.rounded("tau", "max_delta", "outlier_threshold")
        t = math.where(last_hit_step < lr, lr, lr)  # In the shape of the rows.
        delta = t - last_hit_step
        c = math.minimum(delta, max_delta)
        return math.where(delta >= threshold * w, c, w * (1 - tau) + c * tau), t
