"""Adagrad with momentum, any root and a choice of accumulator.

    a <- a + g * g                                      beta2 = 1
    a <- beta2 * a + (1 - beta2) * g * g                beta2 < 1
    s =  (a + epsilon)^(-1 / exponent) * g
    m <- momentum * m + s
    w <- w - lr * m                                     use_nesterov=False
    w <- w - lr * (momentum * m + s)                    use_nesterov=True

The new a scales the gradient, and Nesterov's form reads the new m. The comment on this optimizer in
optimization_parameters.proto says that m sums the scale without the gradient. TensorFlow's code and
its test on TPUs follow the formulas above.
"""

import dataclasses
from typing import Any

import numpy as np

from estimator_emb.optimizers import _tf2
from estimator_emb.optimizers._parameters import Hardware, Math, OptimizationParameters, Slot


@dataclasses.dataclass(eq=False, repr=False)
class AdagradMomentumParameters(OptimizationParameters):
    """Adagrad with momentum for embedding tables. Its slots a and m start from 0.

    They are saved as `<table>/AdagradMomentum/Accumulator` and `<table>/AdagradMomentum/Momentum`.

    For arguments not listed below, see `OptimizationParameters`.

    Args:
      learning_rate: step size.
      momentum: decay of m. Any number.
      use_nesterov: selects one of the two steps above.
      exponent: the root of the accumulator that divides, > 0. 2 is the square root, as in Adagrad.
      beta2: decay of a. Any number. Exactly 1 sums the squares, as in Adagrad.
      epsilon: added to a inside the power, > 0. It is not an initial accumulator.

    Raises:
      ValueError: `exponent` or `epsilon` is not positive.

    Source: `AdagradMomentumParameters` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1; rule:
    `BuildAdagradMomentumOptimizerComputation` of
    tensorflow/core/tpu/kernels/sparse_core_ops_utils.cc.
    """

    hardware = Hardware("AdagradMomentum", "adagrad_momentum")
    slots = (
        Slot("accumulators", "/AdagradMomentum/Accumulator", legacy_name="accumulator"),
        Slot("momenta", "/AdagradMomentum/Momentum"),
    )
    ranges = {"exponent": "positive", "epsilon": "positive"}
    forms = {"use_nesterov": (False, True), "exponent": (2, 3), "beta2": (1, 0.9)}

    learning_rate: float
    momentum: float
    use_nesterov: bool = False
    exponent: float = 2
    beta2: float = 1
    epsilon: float = 1e-10
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        a, m = slots
        momentum, beta2, epsilon = self.rounded("momentum", "beta2", "epsilon")
        # The hardware divides in float32. So the power for exponent 3 is the float32 next to -1/3.
        power = float(np.float32(-1) / np.float32(self.exponent))
        a = a + g * g if beta2 == 1 else beta2 * a + ((1 - beta2) * g) * g
        s = math.pow(a + epsilon, power) * g
        m = momentum * m + s
        if self.use_nesterov:
            return w - lr * (momentum * m + s), a, m
        return w - lr * m, a, m


class AdagradMomentum(_tf2.TF2Optimizer, AdagradMomentumParameters):
    """Adagrad with momentum in the TF2 vocabulary, with the rule of `AdagradMomentumParameters`.

    Its slots `accumulators` (a) and `momenta` (m) are float32 like the table and start from 0. They
    are saved as `<table>/AdagradMomentum/Accumulator` and `<table>/AdagradMomentum/Momentum`.

    Args:
      learning_rate: step size, or a function that returns it: see `TF2Optimizer`. 0.001 by default.
        `AdagradMomentumParameters` has no default.
      momentum: as in `AdagradMomentumParameters`, but 0.0 by default.
      use_nesterov, exponent, beta2, epsilon: as in `AdagradMomentumParameters`.
      use_gradient_accumulation, clip_weight_min, clip_weight_max, weight_decay_factor,
        multiply_weight_decay_factor_by_learning_rate, slot_variable_creation_fn, clipvalue,
        low_dimensional_packing_status: see `TF2Optimizer`.

    Raises:
      TypeError, ValueError: as `AdagradMomentumParameters` and `TF2Optimizer` do.

    Source: `tf.tpu.experimental.embedding.AdagradMomentum` of
    tensorflow/python/tpu/tpu_embedding_v2_utils.py, TF 2.15.1; rule: as
    `AdagradMomentumParameters`.
    """

    def __init__(
        self,
        learning_rate: _tf2.LearningRate = 0.001,
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
        slot_variable_creation_fn: _tf2.SlotVariableCreation | None = None,
        clipvalue: _tf2.ClipValue | None = None,
        low_dimensional_packing_status: bool = False,
    ):
        self._construct(locals())
