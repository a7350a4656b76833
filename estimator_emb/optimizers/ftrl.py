# SPDX-License-Identifier: Apache-2.0
"""FTRL-Proximal ("follow the regularized leader").

With k = -learning_rate_power, a' and z' the new a and z:

    a' = a + g * g
    multiply_linear_by_learning_rate=False:
        z' = z + g - (a'^k - a^k) * w / lr
        c  = l1
        D  = (a'^k + beta) / lr + 2 * l2
    multiply_linear_by_learning_rate=True, where z holds lr times as much:
        z' = z + lr * g - (a'^k - a^k) * w
        c  = lr * l1
        D  = a'^k + 2 * lr * l2 + beta
    N  = -z'                                 l1 = 0
    N  = clamp(z', -c, c) - z'               l1 > 0
    w <- N / D

w is computed afresh from a' and z': an updated row forgets a start that a and z do not explain.

Zero accumulators are fine. Where N and D are both 0, as after a zero gradient on a zero accumulator
without beta and l2, w becomes 0, the weight that z = 0 stands for, and not NaN. The form without
multiplication divides by lr, so a rate of 0 needs the other one.
"""

from typing import Any

from estimator_emb.optimizers._math import Math
from estimator_emb.optimizers._parameters import OptimizationParameters, Slot


class FtrlParameters(OptimizationParameters):
    """FTRL for embedding tables. Slots a and z, saved as `<table>/Ftrl` and `<table>/Ftrl_1`.

    z starts from 0.

    Args:
      learning_rate: step size.
      learning_rate_power: `-k` above, <= 0; -0.5 is the square root of Adagrad, 0 a fixed rate.
      initial_accumulator_value: start of every a, >= 0.
      l1_regularization_strength: `l1` above, >= 0.
      l2_regularization_strength: `l2` above, >= 0.
      use_gradient_accumulation, clip_weight_min, clip_weight_max, weight_decay_factor,
        multiply_weight_decay_factor_by_learning_rate, clip_gradient_min, clip_gradient_max: see
        `OptimizationParameters`.
      multiply_linear_by_learning_rate: which of the two forms above. It changes what z means, so
        a checkpoint of one form does not fit the other.
      beta: added to the root of the accumulator. Any number.
      allow_zero_accumulator: no effect: zero accumulators are always allowed.

    Raises:
      ValueError: `learning_rate_power` is positive, or the initial accumulator or a strength is
        negative.

    Source: `FtrlParameters` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1; rule:
    `BuildFtrlOptimizerComputation` of tensorflow/core/tpu/kernels/sparse_core_ops_utils.cc.
    """

    slots = (
        Slot("accumulators", "/Ftrl", "initial_accumulator_value"),
        Slot("linears", "/Ftrl_1"),
    )

    def __init__(
        self,
        learning_rate: float,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_gradient_accumulation: bool = True,
        clip_weight_min: float | None = None,
        clip_weight_max: float | None = None,
        weight_decay_factor: float | None = None,
        multiply_weight_decay_factor_by_learning_rate: bool | None = None,
        multiply_linear_by_learning_rate: bool = False,
        beta: float = 0,
        allow_zero_accumulator: bool = False,
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
        self.learning_rate_power = learning_rate_power
        self.initial_accumulator_value = initial_accumulator_value
        self.l1_regularization_strength = l1_regularization_strength
        self.l2_regularization_strength = l2_regularization_strength
        self.multiply_linear_by_learning_rate = multiply_linear_by_learning_rate
        self.beta = beta
        self.allow_zero_accumulator = allow_zero_accumulator
        for name in ("learning_rate_power", "beta"):
            self._check_number(name)
        self._check(learning_rate_power <= 0, "learning_rate_power", "at most 0")
        for name in (
            "initial_accumulator_value",
            "l1_regularization_strength",
            "l2_regularization_strength",
        ):
            self._check_number(name)
            self._check(getattr(self, name) >= 0, name, "at least 0")

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        a, z = slots
        power, beta = self.rounded("learning_rate_power", "beta")
        l1, l2 = self.rounded("l1_regularization_strength", "l2_regularization_strength")
        p0 = math.pow(a, -power)
        a = a + g * g
        p1 = math.pow(a, -power)
        if self.multiply_linear_by_learning_rate:
            z = z + lr * g - (p1 - p0) * w
            c = lr * l1
            d = p1 + 2 * lr * l2 + beta
        else:
            z = z + g - ((p1 - p0) * w) / lr
            c = l1
            d = (p1 + beta) / lr + 2 * l2
        n = -z
        if l1 != 0:
            n = math.minimum(math.maximum(z, -c), c) - z
        # |n| + |d| is 0 only where both are. `==` would compare objects, not values, in a v1 graph.
        both_zero = math.maximum(n, -n) + math.maximum(d, -d) <= 0
        return n / math.where(both_zero, d + 1, d), a, z
