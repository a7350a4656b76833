# SPDX-License-Identifier: Apache-2.0
"""Adagrad with momentum, any root and a choice of accumulator.

    a <- a + g * g                                      beta2 = 1
    a <- beta2 * a + (1 - beta2) * g * g                beta2 < 1
    s =  (a + epsilon)^(-1 / exponent) * g
    m <- momentum * m + s
    w <- w - lr * m                                     use_nesterov=False
    w <- w - lr * (momentum * m + s)                    use_nesterov=True

The new a scales the gradient and Nesterov's form reads the new m. The comment on this optimizer in
optimization_parameters.proto accumulates the scale without the gradient in m; TensorFlow's code and
its test on TPUs do what stands above.
"""

from typing import Any

import numpy as np

from estimator_emb.optimizers._math import Math
from estimator_emb.optimizers._parameters import OptimizationParameters, Slot


class AdagradMomentumParameters(OptimizationParameters):
    """Adagrad with momentum for embedding tables. Slots a and m, both starting from 0.

    They are saved as `<table>/AdagradMomentum/Accumulator` and `<table>/AdagradMomentum/Momentum`.

    Args:
      learning_rate: step size.
      momentum: decay of m. Any number.
      use_nesterov: which of the two steps above.
      exponent: which root of the accumulator divides, > 0; 2 is the square root of Adagrad.
      beta2: decay of a. Any number; exactly 1 sums the squares as Adagrad does.
      epsilon: added to a inside the power, > 0. It is no initial accumulator.
      use_gradient_accumulation, clip_weight_min, clip_weight_max, weight_decay_factor,
        multiply_weight_decay_factor_by_learning_rate, clip_gradient_min, clip_gradient_max: see
        `OptimizationParameters`.

    Raises:
      ValueError: `exponent` or `epsilon` is not positive.

    Source: `AdagradMomentumParameters` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1; rule:
    `BuildAdagradMomentumOptimizerComputation` of
    tensorflow/core/tpu/kernels/sparse_core_ops_utils.cc.
    """

    slots = (
        Slot("accumulators", "/AdagradMomentum/Accumulator"),
        Slot("momenta", "/AdagradMomentum/Momentum"),
    )

    def __init__(
        self,
        learning_rate: float,
        momentum: float,
        use_nesterov: bool = False,
        exponent: float = 2,
        beta2: float = 1,
        epsilon: float = 1e-10,
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
        self.momentum = momentum
        self.use_nesterov = use_nesterov
        self.exponent = exponent
        self.beta2 = beta2
        self.epsilon = epsilon
        for name in ("momentum", "exponent", "beta2", "epsilon"):
            self._check_number(name)
        self._check(exponent > 0, "exponent", "positive")
        self._check(epsilon > 0, "epsilon", "positive")

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        a, m = slots
        momentum, beta2, epsilon = self.rounded("momentum", "beta2", "epsilon")
        # The hardware forms the power itself in float32: -1/3, say, is not the double nearest it.
        power = float(np.float32(-1) / np.float32(self.exponent))
        if beta2 == 1:
            a = a + g * g
        else:
            a = beta2 * a + ((1 - beta2) * g) * g
        s = math.pow(a + epsilon, power) * g
        m = momentum * m + s
        if self.use_nesterov:
            return w - lr * (momentum * m + s), a, m
        return w - lr * m, a, m
