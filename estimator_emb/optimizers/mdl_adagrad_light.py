"""MDL Adagrad light. The hardware supports this optimizer, but its rule was never published."""

import dataclasses
from typing import Any

from estimator_emb.optimizers._parameters import Hardware, Math, OptimizationParameters, Slot


@dataclasses.dataclass(eq=False, repr=False)
class MDLAdagradLightParameters(OptimizationParameters):
    """MDL Adagrad light for embedding tables, on TPU hardware only.

    TensorFlow has the names of its hyper-parameters, but no formula, defaults or Python class. Only
    the makers of the hardware know their meaning and good values. The slots accumulators, weights
    and benefits are saved as `<table>/MDLAdagradLight/accumulators` and so on.

    Args:
      learning_rate: step size.
      l2, lr_power, min_servable_mdl_benefit, mdl_mix_in_margin, mdl_benefit_rampup_coeff,
        mdl_min_weight, benefit_revisit_scale, max_event_benefit, max_total_benefit, mdl_hard_limit:
        numbers, required, given to the hardware as they are.
      hard_limit_min_benefit, mdl_regularize: True or False, required, given to the hardware too.
      initial_accumulator: start of every accumulator, > 0. Weights and benefits start from 0. These
        starts are our choice. The hardware uses the same values in rows that pad a table.
      use_gradient_accumulation, clip_weight_min, clip_weight_max, clip_gradient_min,
        clip_gradient_max: see `OptimizationParameters`. There is no weight decay, because the
        hardware's weight decay does not work with this optimizer.

    Raises:
      TypeError: a hyper-parameter that must be a number is not.
      ValueError: `initial_accumulator` is not positive.

    Source: `MdlAdagradLightParameters` of optimization_parameters.proto and
    tpu_embedding_optimization_parameters_utils.cc, TF 2.15.1.
    """

    hardware = Hardware("MDLAdagradLight", "mdl_adagrad_light")
    slots = (
        Slot("accumulators", "/MDLAdagradLight/accumulators", "initial_accumulator"),
        Slot("weights", "/MDLAdagradLight/weights"),
        Slot("benefits", "/MDLAdagradLight/benefits"),
    )
    ranges = {"initial_accumulator": "positive"}
    only_on_hardware = True

    learning_rate: float
    l2: float
    lr_power: float
    min_servable_mdl_benefit: float
    mdl_mix_in_margin: float
    mdl_benefit_rampup_coeff: float
    mdl_min_weight: float
    benefit_revisit_scale: float
    max_event_benefit: float
    max_total_benefit: float
    mdl_hard_limit: float
    hard_limit_min_benefit: bool
    mdl_regularize: bool
    initial_accumulator: float = 0.1
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("hard_limit_min_benefit", "mdl_regularize"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(
                    f"{type(self).__name__}: {name} must be True or False; got "
                    f"{getattr(self, name)!r}."
                )

    def update(self, math: Math, lr: Any, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        raise NotImplementedError(
            "MDLAdagradLightParameters: the update rule of MDL Adagrad light was never published, "
            "so only TPU hardware can train with it. Choose another optimizer."
        )
