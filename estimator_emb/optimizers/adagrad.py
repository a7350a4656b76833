"""Adagrad.

    a <- a + g * g
    w <- w - lr * g / sqrt(a)

The step divides by the root of the new a, without an epsilon. A positive initial accumulator keeps
the first step finite. TensorFlow treats a number below 1.2e-38 as 0. Where a is 0, w is unchanged.
"""

import dataclasses
from typing import Any

from estimator_emb.optimizers import _tf2
from estimator_emb.optimizers._parameters import Hardware, Math, OptimizationParameters, Slot


@dataclasses.dataclass(eq=False, repr=False)
class AdagradParameters(OptimizationParameters):
    """Adagrad for embedding tables. Its slot a is saved as `<table>/Adagrad`.

    For arguments not listed below, see `OptimizationParameters`.

    Args:
      learning_rate: step size.
      initial_accumulator: start of every accumulator, > 0.

    Raises:
      ValueError: `initial_accumulator` is not positive.

    Source: `AdagradParameters` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1; rule:
    `BuildAdagradOptimizerComputation` of tensorflow/core/tpu/kernels/sparse_core_ops_utils.cc.
    """

    hardware = Hardware("Adagrad", "adagrad")
    slots = (Slot("accumulators", "/Adagrad", "initial_accumulator", "accumulator"),)
    ranges = {"initial_accumulator": "positive"}

    learning_rate: float
    initial_accumulator: float = 0.1
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        (a,) = slots
        a = a + g * g
        return w - math.quotient(lr * g, math.sqrt(a)), a


class Adagrad(_tf2.TF2Optimizer, AdagradParameters):
    """Adagrad in the TF2 vocabulary, with the rule of `AdagradParameters`.

    Its slot `accumulators` is float32 like the table, and is saved as `<table>/Adagrad`.

    Args:
      learning_rate: step size, or a function that returns it: see `TF2Optimizer`. 0.001 by default.
        `AdagradParameters` has no default.
      initial_accumulator_value: start of every a, > 0. `AdagradParameters` calls it
        `initial_accumulator`, with the same default.
      use_gradient_accumulation, clip_weight_min, clip_weight_max, weight_decay_factor,
        multiply_weight_decay_factor_by_learning_rate, slot_variable_creation_fn, clipvalue,
        low_dimensional_packing_status: see `TF2Optimizer`.

    Raises:
      ValueError: `initial_accumulator_value` is not positive.
      TypeError, ValueError: as `TF2Optimizer` does.

    Source: `tf.tpu.experimental.embedding.Adagrad` of
    tensorflow/python/tpu/tpu_embedding_v2_utils.py, TF 2.15.1; rule: as `AdagradParameters`.
    """

    renamed = {"initial_accumulator": "initial_accumulator_value"}

    def __init__(
        self,
        learning_rate: _tf2.LearningRate = 0.001,
        initial_accumulator_value: float = 0.1,
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

    @property
    def initial_accumulator_value(self) -> float:
        return self.initial_accumulator
