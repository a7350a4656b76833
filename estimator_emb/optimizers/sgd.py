# SPDX-License-Identifier: Apache-2.0
"""Stochastic gradient descent.

    w <- w - lr * g
"""

from typing import Any

from estimator_emb.optimizers._math import Math
from estimator_emb.optimizers._parameters import OptimizationParameters


class StochasticGradientDescentParameters(OptimizationParameters):
    """Stochastic gradient descent for embedding tables. No slots.

    Args:
      learning_rate: step size.
      use_gradient_accumulation, clip_weight_min, clip_weight_max, weight_decay_factor,
        multiply_weight_decay_factor_by_learning_rate, clip_gradient_min, clip_gradient_max: see
        `OptimizationParameters`.

    Source: `StochasticGradientDescentParameters` of tensorflow/python/tpu/tpu_embedding.py, TF
    2.15.1; rule: `BuildSgdOptimizerComputation` of
    tensorflow/core/tpu/kernels/sparse_core_ops_utils.cc.
    """

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        return (w - lr * g,)
