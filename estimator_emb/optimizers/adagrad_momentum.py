# SPDX-License-Identifier: Apache-2.0
"""Adagrad with momentum, any root and a choice of accumulator.

    a <- a + g * g                                      beta2 = 1
    a <- beta2 * a + (1 - beta2) * g * g                beta2 < 1
    s =  (a + epsilon)^(-1 / exponent) * g
    m <- momentum * m + s
    w <- w - lr * m                                     use_nesterov=False
    w <- w - lr * (momentum * m + s)                    use_nesterov=True

The new a scales the gradient and Nesterov's form reads the new m. The comment on this optimizer in
optimization_parameters.proto says that m sums the scale without the gradient; TensorFlow's code and
its test on TPUs do what stands above.
"""

from typing import Any

import numpy as np

from estimator_emb.optimizers._math import Math
from estimator_emb.optimizers._parameters import Hardware, OptimizationParameters, Slot
from estimator_emb.optimizers._tf2 import (
    ClipValue,
    LearningRate,
    SlotVariableCreation,
    TF2Optimizer,
)


class AdagradMomentumParameters(OptimizationParameters):
    """Adagrad with momentum for embedding tables. Its slots a and m start from 0.

    They are saved as `<table>/AdagradMomentum/Accumulator` and `<table>/AdagradMomentum/Momentum`.

    Args:
      learning_rate: step size.
      momentum: decay of m. Any number.
      use_nesterov: which of the two steps above.
      exponent: which root of the accumulator divides, > 0; 2 is the square root of Adagrad.
      beta2: decay of a. Any number; exactly 1 sums the squares as Adagrad does.
      epsilon: added to a inside the power, > 0. It is no initial accumulator.
      use_gradient_accumulation, clip_weight_min, clip_weight_max, weight_decay_factor,
        multiply_weight_decay_factor_by_learning_rate: as in `AdagradMomentum`, below.
      clip_gradient_min, clip_gradient_max: limits of a row's summed gradient; None means no limit.
        They need `use_gradient_accumulation`.

    Raises:
      ValueError: `exponent` or `epsilon` is not positive.

    Source: `AdagradMomentumParameters` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1; rule:
    `BuildAdagradMomentumOptimizerComputation` of
    tensorflow/core/tpu/kernels/sparse_core_ops_utils.cc.
    """

    hardware = Hardware(
        "AdagradMomentum",
        "adagrad_momentum",
        ("momentum", "use_nesterov", "exponent", "beta2", "epsilon"),
    )
    slots = (
        Slot("accumulators", "/AdagradMomentum/Accumulator", legacy_name="accumulator"),
        Slot("momenta", "/AdagradMomentum/Momentum"),
    )
    forms = {"use_nesterov": (False, True), "exponent": (2, 3), "beta2": (1, 0.9)}

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
        # The hardware divides in float32, so that the power of exponent 3 is the float32 next to
        # -1/3.
        power = float(np.float32(-1) / np.float32(self.exponent))
        a = a + g * g if beta2 == 1 else beta2 * a + ((1 - beta2) * g) * g
        s = math.pow(a + epsilon, power) * g
        m = momentum * m + s
        if self.use_nesterov:
            return w - lr * (momentum * m + s), a, m
        return w - lr * m, a, m


class AdagradMomentum(TF2Optimizer, AdagradMomentumParameters):
    """Adagrad with momentum in the TF2 vocabulary. Its slots are `accumulators` a and `momenta` m.

    They are saved as `<table>/AdagradMomentum/Accumulator` and `<table>/AdagradMomentum/Momentum`.

        a <- a + g * g                                      beta2 = 1
        a <- beta2 * a + (1 - beta2) * g * g                beta2 < 1
        s =  (a + epsilon)^(-1 / exponent) * g
        m <- momentum * m + s
        w <- w - lr * m                                     use_nesterov=False
        w <- w - lr * (momentum * m + s)                    use_nesterov=True

    w is a row of the table and g its summed gradient, float32 [dimension] each, and so are a and m,
    which start from 0; lr is a float32 scalar. All operations are elementwise.

    Args:
      learning_rate: step size, a number >= 0, or a function without arguments that returns it as a
        number or a scalar tensor. The function is called once, in the graph of the training step. A
        number that it returns stays; a tensor gives each step its own rate. 0.001 by default;
        `AdagradMomentumParameters` has no default.
      momentum: decay of m. Any number. 0.0 by default; `AdagradMomentumParameters` has no default.
      use_nesterov: which of the two steps above.
      exponent: which root of the accumulator divides, > 0; 2 is the square root of Adagrad.
      beta2: decay of a. Any number; exactly 1 sums the squares as Adagrad does.
      epsilon: added to a inside the power, > 0. It is no initial accumulator.
      use_gradient_accumulation: True sums all gradients of a row over the whole batch before one
        update. False runs one update for each core whose slice of the batch holds the row; with one
        core the two are the same.
      clip_weight_min, clip_weight_max: limits of a row's weights after its update; None means no
        limit.
      weight_decay_factor: fraction of its weights that a row loses before it is updated; None means
        no decay.
      multiply_weight_decay_factor_by_learning_rate: True makes that fraction
        `weight_decay_factor * learning_rate`.
      slot_variable_creation_fn: function that creates the slot variables. It is called with the
        table's variable, the list of slot names ['accumulators', 'momenta'], and a list of
        initializers, functions of a shape and a dtype; returns {slot name: variable}, each a
        resource variable of the table's shape and dtype under any name. With None they have
        the names above.
      clipvalue: limits of a row's summed gradient: a positive number c for (-c, c), or a tuple
        (min, max) in which None means no limit. Needs `use_gradient_accumulation`.
      low_dimensional_packing_status: speed hint for the hardware; changes no number.

    Raises:
      TypeError: a hyper-parameter that must be a number is not.
      ValueError: a number is not finite, `exponent` or `epsilon` is not positive, `clipvalue` is
        none of the above or given without `use_gradient_accumulation`, `clip_weight_min` exceeds
        `clip_weight_max`, or `slot_variable_creation_fn` is no function.

    Source: `tf.tpu.experimental.embedding.AdagradMomentum` of
    tensorflow/python/tpu/tpu_embedding_v2_utils.py, TF 2.15.1; rule: as
    `AdagradMomentumParameters`.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        momentum: float = 0.0,
        use_nesterov: bool = False,
        exponent: float = 2,
        beta2: float = 1,
        epsilon: float = 1e-10,
        use_gradient_accumulation: bool = True,
        clip_weight_min: float | None = None,
        clip_weight_max: float | None = None,
        weight_decay_factor: float | None = None,
        multiply_weight_decay_factor_by_learning_rate: bool | None = None,
        slot_variable_creation_fn: SlotVariableCreation | None = None,
        clipvalue: ClipValue | None = None,
        low_dimensional_packing_status: bool = False,
    ):
        super().__init__(
            learning_rate,  # type: ignore[arg-type]
            momentum,
            use_nesterov,
            exponent,
            beta2,
            epsilon,
            use_gradient_accumulation,
            clip_weight_min,
            clip_weight_max,
            weight_decay_factor,
            multiply_weight_decay_factor_by_learning_rate,
            *self._limits(clipvalue, use_gradient_accumulation),
        )
        self._check_creation(slot_variable_creation_fn)
        self.slot_variable_creation_fn = slot_variable_creation_fn
        self.low_dimensional_packing_status = low_dimensional_packing_status
