"""Adam, lazy or not, without bias correction.

    m <- beta1 * m + (1 - beta1) * g
    v <- beta2 * v + (1 - beta2) * g * g
    w <- w - lr * m / sqrt(v + epsilon^2)        sum_inside_sqrt=True
    w <- w - lr * m / (sqrt(v) + epsilon)        sum_inside_sqrt=False

The hardware never corrects the bias of m and v. To correct it in step t, return the learning rate
`lr * sqrt(1 - beta2^t) / (1 - beta1^t)` from `learning_rate_fn`, or from the function that is the
`learning_rate` of `Adam`.

Lazy Adam skips the rows that no id of the batch names. Without it, these rows take the step too,
with g = 0: their m and v decay, and their w keeps moving.
"""

import dataclasses
from typing import Any

from estimator_emb.optimizers import _tf2
from estimator_emb.optimizers._parameters import Hardware, Math, OptimizationParameters, Slot


@dataclasses.dataclass(eq=False, repr=False)
class AdamParameters(OptimizationParameters):
    """Adam for embedding tables. Its slots are saved as `<table>/Adam/m` and `<table>/Adam/v`.

    For arguments not listed below, see `OptimizationParameters`.

    Args:
      learning_rate: step size.
      beta1: decay of m, in [0, 1).
      beta2: decay of v, in [0, 1).
      epsilon: positive. Squared if it is inside the root. 1e-8 by default, but 1e-7 in `Adam`.
      lazy_adam: True updates only the rows that the batch names. False needs
        `use_gradient_accumulation` and costs a pass over the whole table every step.
      sum_inside_sqrt: selects one of the two denominators above.

    Raises:
      ValueError: a beta is outside [0, 1), epsilon is not positive, or `lazy_adam` and
        `use_gradient_accumulation` are both False.

    Source: `AdamParameters` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1; rule:
    `BuildAdamOptimizerComputation` of tensorflow/core/tpu/kernels/sparse_core_ops_utils.cc; lazy
    or not: `use_non_lazy_adam` of optimization_parameters.proto.
    """

    hardware = Hardware(
        "ADAM",
        "adam",
        {"use_non_lazy_adam": "updates_untouched_rows", "use_sum_inside_sqrt": "sum_inside_sqrt"},
    )
    slots = (
        Slot("momenta", "/Adam/m", legacy_name="m"),
        Slot("velocities", "/Adam/v", legacy_name="v"),
    )
    ranges = {"beta1": "in [0, 1)", "beta2": "in [0, 1)", "epsilon": "positive"}
    forms = {"sum_inside_sqrt": (False, True)}

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-08
    lazy_adam: bool = True
    sum_inside_sqrt: bool = True
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lazy_adam and not self.use_gradient_accumulation:
            raise ValueError(
                f"{type(self).__name__}: lazy_adam=False needs use_gradient_accumulation=True; "
                f"got {self.use_gradient_accumulation}."
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


class Adam(_tf2.TF2Optimizer, AdamParameters):
    """Adam in the TF2 vocabulary, with the rule of `AdamParameters`.

    Its slots `momenta` (m) and `velocities` (v) are float32 like the table, and start from 0. They
    are saved as `<table>/Adam/m` and `<table>/Adam/v`.

    Args:
      learning_rate: step size, or a function that returns it: see `TF2Optimizer`. 0.001 by default.
        `AdamParameters` has no default.
      beta_1, beta_2: `beta1` and `beta2` of `AdamParameters`.
      epsilon: as in `AdamParameters`, but 1e-7 by default.
      lazy_adam, sum_inside_sqrt: as in `AdamParameters`.
      use_gradient_accumulation, clip_weight_min, clip_weight_max, weight_decay_factor,
        multiply_weight_decay_factor_by_learning_rate, slot_variable_creation_fn, clipvalue,
        low_dimensional_packing_status: see `TF2Optimizer`.

    Raises:
      TypeError, ValueError: as `AdamParameters` and `TF2Optimizer` do.

    Source: `tf.tpu.experimental.embedding.Adam` of tensorflow/python/tpu/tpu_embedding_v2_utils.py,
    TF 2.15.1; rule: as `AdamParameters`.
    """

    renamed = {"beta1": "beta_1", "beta2": "beta_2"}

    def __init__(
        self,
        learning_rate: _tf2.LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-07,
        lazy_adam: bool = True,
        sum_inside_sqrt: bool = True,
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
    def beta_1(self) -> float:
        return self.beta1

    @property
    def beta_2(self) -> float:
        return self.beta2
