# SPDX-License-Identifier: Apache-2.0
"""Stochastic gradient descent.

A row moves against its gradient, and nothing is kept beside it:

    w <- w - lr * g
"""

from typing import Any

from estimator_emb.optimizers._math import Math
from estimator_emb.optimizers._parameters import Hardware, OptimizationParameters
from estimator_emb.optimizers._tf2 import ClipValue, LearningRate, TF2Optimizer


class StochasticGradientDescentParameters(OptimizationParameters):
    """Stochastic gradient descent for embedding tables. It has no slots.

    Args:
      learning_rate: step size.
      use_gradient_accumulation, clip_weight_min, clip_weight_max, weight_decay_factor,
        multiply_weight_decay_factor_by_learning_rate: as in `SGD`, below.
      clip_gradient_min, clip_gradient_max: limits of a row's summed gradient; None means no limit.
        They need `use_gradient_accumulation`.

    Source: `StochasticGradientDescentParameters` of tensorflow/python/tpu/tpu_embedding.py, TF
    2.15.1; rule: `BuildSgdOptimizerComputation` of
    tensorflow/core/tpu/kernels/sparse_core_ops_utils.cc.
    """

    hardware = Hardware("StochasticGradientDescent", "stochastic_gradient_descent")

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        return (w - lr * g,)


class SGD(TF2Optimizer, StochasticGradientDescentParameters):
    """Stochastic gradient descent in the TF2 vocabulary. It has no slots.

        w <- w - lr * g

    w is a row of the table and g its summed gradient, float32 [dimension] each; lr is a float32
    scalar.

    Args:
      learning_rate: step size, a number >= 0, or a function without arguments that returns it as a
        number or a scalar tensor. The function is called once, in the graph of the training step. A
        number that it returns stays; a tensor gives each step its own rate. 0.01 by default;
        `StochasticGradientDescentParameters` has no default.
      use_gradient_accumulation: True sums all gradients of a row over the whole batch before one
        update. False runs one update for each core whose slice of the batch holds the row; with one
        core the two are the same.
      clip_weight_min, clip_weight_max: limits of a row's weights after its update; None means no
        limit.
      weight_decay_factor: fraction of its weights that a row loses before it is updated; None means
        no decay.
      multiply_weight_decay_factor_by_learning_rate: True makes that fraction
        `weight_decay_factor * learning_rate`.
      clipvalue: limits of a row's summed gradient: a positive number c for (-c, c), or a tuple
        (min, max) in which None means no limit. Needs `use_gradient_accumulation`.
      low_dimensional_packing_status: speed hint for the hardware; changes no number.

    Raises:
      TypeError: a hyper-parameter that must be a number is not.
      ValueError: a number is not finite, `clipvalue` is none of the above or given without
        `use_gradient_accumulation`, or `clip_weight_min` exceeds `clip_weight_max`.

    Source: `tf.tpu.experimental.embedding.SGD` of tensorflow/python/tpu/tpu_embedding_v2_utils.py,
    TF 2.15.1; rule: as `StochasticGradientDescentParameters`.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        use_gradient_accumulation: bool = True,
        clip_weight_min: float | None = None,
        clip_weight_max: float | None = None,
        weight_decay_factor: float | None = None,
        multiply_weight_decay_factor_by_learning_rate: bool | None = None,
        clipvalue: ClipValue | None = None,
        low_dimensional_packing_status: bool = False,
    ):
        super().__init__(
            learning_rate,  # type: ignore[arg-type]
            use_gradient_accumulation,
            clip_weight_min,
            clip_weight_max,
            weight_decay_factor,
            multiply_weight_decay_factor_by_learning_rate,
            *self._limits(clipvalue, use_gradient_accumulation),
        )
        self.low_dimensional_packing_status = low_dimensional_packing_status
