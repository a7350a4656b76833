# SPDX-License-Identifier: Apache-2.0
"""Adagrad.

    a <- a + g * g
    w <- w - lr * g / sqrt(a)

The new accumulator divides, and there is no epsilon: only a positive initial accumulator keeps the
first step finite.
"""

from typing import Any

from estimator_emb.optimizers._math import Math
from estimator_emb.optimizers._parameters import OptimizationParameters, Slot


class AdagradParameters(OptimizationParameters):
    """Adagrad for embedding tables. One slot, `a` above, saved as `<table>/Adagrad`.

    Args:
      learning_rate: step size.
      initial_accumulator: start of every accumulator, > 0.
      use_gradient_accumulation, clip_weight_min, clip_weight_max, weight_decay_factor,
        multiply_weight_decay_factor_by_learning_rate, clip_gradient_min, clip_gradient_max: see
        `OptimizationParameters`.

    Raises:
      ValueError: `initial_accumulator` is not positive.

    Source: `AdagradParameters` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1; rule:
    `BuildAdagradOptimizerComputation` of tensorflow/core/tpu/kernels/sparse_core_ops_utils.cc.
    """

    slots = (Slot("accumulators", "/Adagrad", "initial_accumulator"),)

    def __init__(
        self,
        learning_rate: float,
        initial_accumulator: float = 0.1,
        use_gradient_accumulation: bool = True,
        clip_weight_min: float | None = None,
        clip_weight_max: float | None = None,
        weight_decay_factor: float | None = None,
        multiply_weight_decay_factor_by_learning_rate: bool | None = None,
        clip_gradient_min: float | None = None,
        clip_gradient_max: float | None = None,
    ):
        super().__init__(
            learning_rate,
            use_gradient_accumulation,
            clip_weight_min,
            clip_weight_max,
            weight_decay_factor,
            multiply_weight_decay_factor_by_learning_rate,
            clip_gradient_min,
            clip_gradient_max,
        )
        self.initial_accumulator = initial_accumulator
        self._check_number("initial_accumulator")
        self._check(initial_accumulator > 0, "initial_accumulator", "positive")

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        (a,) = slots
        a = a + g * g
        return w - (lr * g) / math.sqrt(a), a
