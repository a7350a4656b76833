"""Stochastic gradient descent.

A row moves against its gradient. There are no slots:

    w <- w - lr * g
"""

from typing import Any

from estimator_emb.optimizers._parameters import Hardware, Math, OptimizationParameters
from estimator_emb.optimizers._tf2 import ClipValue, LearningRate, TF2Optimizer


class StochasticGradientDescentParameters(OptimizationParameters):
    """Stochastic gradient descent for embedding tables. It has no slots.

    For arguments not listed below, see `OptimizationParameters`.

    Args:
      learning_rate: step size.

    Source: `StochasticGradientDescentParameters` of tensorflow/python/tpu/tpu_embedding.py, TF
    2.15.1; rule: `BuildSgdOptimizerComputation` of
    tensorflow/core/tpu/kernels/sparse_core_ops_utils.cc.
    """

    hardware = Hardware("StochasticGradientDescent", "stochastic_gradient_descent")

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        return (w - lr * g,)


class SGD(TF2Optimizer, StochasticGradientDescentParameters):
    """Stochastic gradient descent in the TF2 vocabulary, for float32 tables. It has no slots.

    Args:
      learning_rate: step size, or a function that returns it: see `TF2Optimizer`. 0.01 by default.
        `StochasticGradientDescentParameters` has no default.
      use_gradient_accumulation, clip_weight_min, clip_weight_max, weight_decay_factor,
        multiply_weight_decay_factor_by_learning_rate, clipvalue,
        low_dimensional_packing_status: see `TF2Optimizer`.

    Raises:
      TypeError, ValueError: as `TF2Optimizer` does.

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
        self._construct(locals())
