# SPDX-License-Identifier: Apache-2.0
"""Adam, lazy or not, without bias correction.

    m <- beta1 * m + (1 - beta1) * g
    v <- beta2 * v + (1 - beta2) * g * g
    w <- w - lr * m / sqrt(v + epsilon^2)        sum_inside_sqrt=True
    w <- w - lr * m / (sqrt(v) + epsilon)        sum_inside_sqrt=False

The hardware never corrects the bias of m and v. Who wants it feeds a learning rate of
`lr * sqrt(1 - beta2^t) / (1 - beta1^t)` through `learning_rate_fn`.

Lazy Adam leaves the rows that no id of the batch names alone; otherwise every row of the table
takes the step, with g = 0, so that m and v decay and w keeps moving.
"""

from typing import Any

from estimator_emb.optimizers._math import Math
from estimator_emb.optimizers._parameters import OptimizationParameters, Slot


class AdamParameters(OptimizationParameters):
    """Adam for embedding tables. Slots m and v, saved as `<table>/Adam/m` and `<table>/Adam/v`.

    Args:
      learning_rate: step size.
      beta1: decay of m, in [0, 1).
      beta2: decay of v, in [0, 1).
      epsilon: > 0. Squared where it stands inside the root. (`tf.tpu.experimental.embedding.Adam`
        defaults to 1e-7.)
      lazy_adam: True updates only the rows that the batch names. False needs
        `use_gradient_accumulation` and costs a pass over the whole table every step.
      sum_inside_sqrt: which of the two denominators above.
      use_gradient_accumulation, clip_weight_min, clip_weight_max, weight_decay_factor,
        multiply_weight_decay_factor_by_learning_rate, clip_gradient_min, clip_gradient_max: see
        `OptimizationParameters`.

    Raises:
      ValueError: a beta is outside [0, 1), epsilon is not positive, or `lazy_adam` and
        `use_gradient_accumulation` are both False.

    Source: `AdamParameters` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1; rule:
    `BuildAdamOptimizerComputation` of tensorflow/core/tpu/kernels/sparse_core_ops_utils.cc; lazy
    or not: `use_non_lazy_adam` of optimization_parameters.proto.
    """

    slots = (Slot("momenta", "/Adam/m"), Slot("velocities", "/Adam/v"))

    def __init__(
        self,
        learning_rate: float,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-08,
        lazy_adam: bool = True,
        sum_inside_sqrt: bool = True,
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
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.lazy_adam = lazy_adam
        self.sum_inside_sqrt = sum_inside_sqrt
        for name in ("beta1", "beta2", "epsilon"):
            self._check_number(name)
        self._check(0 <= beta1 < 1, "beta1", "in [0, 1)")
        self._check(0 <= beta2 < 1, "beta2", "in [0, 1)")
        self._check(epsilon > 0, "epsilon", "positive")
        if not lazy_adam and not use_gradient_accumulation:
            raise ValueError(
                "AdamParameters: lazy_adam=False needs use_gradient_accumulation=True; got False."
            )

    @property
    def updates_untouched_rows(self) -> bool:  # type: ignore[override]
        return not self.lazy_adam

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        m, v = slots
        beta1, beta2, epsilon = self.rounded("beta1", "beta2", "epsilon")
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + ((1 - beta2) * g) * g
        if self.sum_inside_sqrt:
            return w - (lr * m) / math.sqrt(v + epsilon * epsilon), m, v
        return w - (lr * m) / (math.sqrt(v) + epsilon), m, v
