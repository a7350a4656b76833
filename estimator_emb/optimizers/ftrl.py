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

w is computed only from a' and z'. So the first update of a row forgets its initial w, unless a and
z match it.

Accumulators may be zero. D is 0 after a zero gradient on a zero accumulator without beta and l2.
Then w becomes 0, the weight for z = 0, and not NaN. With `multiply_linear_by_learning_rate=False`
the rule divides by lr, so a rate of 0 needs True.
"""

import dataclasses
from typing import Any

from estimator_emb.optimizers import _tf2
from estimator_emb.optimizers._parameters import Hardware, Math, OptimizationParameters, Slot


@dataclasses.dataclass(eq=False, repr=False)
class FtrlParameters(OptimizationParameters):
    """FTRL for embedding tables.

    Its slots a and z are saved as `<table>/Ftrl` and `<table>/Ftrl_1`. z starts from 0.

    For arguments not listed below, see `OptimizationParameters`.

    Args:
      learning_rate: step size.
      learning_rate_power: `-k` above, <= 0. -0.5 is the square root of Adagrad, 0 a fixed rate.
      initial_accumulator_value: start of every a, >= 0.
      l1_regularization_strength: `l1` above, >= 0.
      l2_regularization_strength: `l2` above, >= 0.
      multiply_linear_by_learning_rate: selects one of the two forms above. It changes the meaning
        of z, so a checkpoint of one form does not fit the other.
      beta: added to the root of the accumulator. Any number.
      allow_zero_accumulator: no effect. Zero accumulators are always allowed.

    Raises:
      ValueError: `learning_rate_power` is positive, or the initial accumulator or a strength is
        negative.

    Source: `FtrlParameters` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1; rule:
    `BuildFtrlOptimizerComputation` of tensorflow/core/tpu/kernels/sparse_core_ops_utils.cc.
    """

    hardware = Hardware(
        "FTRL",
        "ftrl",
        {
            "l1": "l1_regularization_strength",
            "l2": "l2_regularization_strength",
            "lr_power": "learning_rate_power",
            "multiply_linear_by_lr": "multiply_linear_by_learning_rate",
        },
    )
    slots = (
        Slot("accumulators", "/Ftrl", "initial_accumulator_value", "accumulator"),
        Slot("linears", "/Ftrl_1", legacy_name="linear"),
    )
    ranges = {
        "learning_rate_power": "at most 0",
        "initial_accumulator_value": "at least 0",
        "l1_regularization_strength": "at least 0",
        "l2_regularization_strength": "at least 0",
    }
    forms = {
        "learning_rate_power": (-0.5, -0.4),
        "l1_regularization_strength": (0.0, 0.1),
        "multiply_linear_by_learning_rate": (False, True),
    }
    initial_linear_value = 0.0
    """Initial value of every z. As in TensorFlow's class, it is not an argument."""

    learning_rate: float
    learning_rate_power: float = -0.5
    initial_accumulator_value: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    multiply_linear_by_learning_rate: bool = False
    beta: float = 0
    allow_zero_accumulator: bool = False
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

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
        # In a v1 graph, `==` compares tensors as objects, but `<=` compares their values.
        return n / math.where(math.maximum(d, -d) <= 0, float("inf"), d), a, z


class FTRL(_tf2.TF2Optimizer, FtrlParameters):
    """FTRL-Proximal in the TF2 vocabulary, with the rule of `FtrlParameters`.

    Its slots `accumulators` (a) and `linears` (z) are float32 like the table. They are saved as
    `<table>/Ftrl` and `<table>/Ftrl_1`. z starts from 0. The order of the arguments differs from
    `FtrlParameters`.

    Args:
      learning_rate: step size, or a function that returns it: see `TF2Optimizer`. 0.001 by default.
        `FtrlParameters` has no default.
      learning_rate_power, l1_regularization_strength, l2_regularization_strength, beta,
        multiply_linear_by_learning_rate, allow_zero_accumulator: as in `FtrlParameters`.
      initial_accumulator_value: start of every a, > 0. `FtrlParameters` also takes 0.
      use_gradient_accumulation, clip_weight_min, clip_weight_max, weight_decay_factor,
        multiply_weight_decay_factor_by_learning_rate, slot_variable_creation_fn, clipvalue,
        low_dimensional_packing_status: see `TF2Optimizer`.

    Raises:
      ValueError: `initial_accumulator_value` is not positive, `learning_rate_power` is positive, or
        a strength is negative. TensorFlow's class documents the last two, but does not check them.
      TypeError, ValueError: as `TF2Optimizer` does.

    Source: `tf.tpu.experimental.embedding.FTRL` of tensorflow/python/tpu/tpu_embedding_v2_utils.py,
    TF 2.15.1; rule: as `FtrlParameters`.
    """

    ranges = {**FtrlParameters.ranges, "initial_accumulator_value": "positive"}

    def __init__(
        self,
        learning_rate: _tf2.LearningRate = 0.001,
        learning_rate_power: float = -0.5,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        beta: float = 0.0,
        initial_accumulator_value: float = 0.1,
        use_gradient_accumulation: bool = True,
        clip_weight_min: float | None = None,
        clip_weight_max: float | None = None,
        weight_decay_factor: float | None = None,
        multiply_weight_decay_factor_by_learning_rate: bool | None = None,
        slot_variable_creation_fn: _tf2.SlotVariableCreation | None = None,
        clipvalue: _tf2.ClipValue | None = None,
        multiply_linear_by_learning_rate: bool = False,
        allow_zero_accumulator: bool = False,
        low_dimensional_packing_status: bool = False,
    ):
        self._construct(locals())
