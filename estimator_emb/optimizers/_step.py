# SPDX-License-Identifier: Apache-2.0
"""What surrounds every optimizer rule, once for all: limits, decay, then the rule.

Order (the hardware's, as far as it is documented): clip the summed gradient, decay the weights,
run the rule, clip the weights. Slots are never clipped.
"""

from typing import Any

import numpy as np

from estimator_emb.optimizers._math import Math
from estimator_emb.optimizers._parameters import OptimizationParameters


def step(
    parameters: OptimizationParameters,
    math: Math,
    lr: Any,
    g: Any,
    w: Any,
    slots: tuple[Any, ...],
    clipping_limit: float | None = None,
) -> tuple[Any, ...]:
    """Updates rows by one step.

    Args:
      parameters: the optimizer.
      math: the array library the rows belong to.
      lr: learning rate, float32 scalar.
      g: summed gradient of each row, float32 [rows, dimension].
      w: the rows' weights, same shape.
      slots: the rows' slot values, same shape, in the order of `parameters.slots`.
      clipping_limit: `EmbeddingConfigSpec.clipping_limit`: the summed gradient is clipped to
        [-limit, +limit] before the optimizer's own gradient limits.

    Returns:
      `(w, *slots)` after the step.

    Source: optimization_parameters.proto (`clipping_limits`, `gradient_clipping_limits`,
    `weight_decay_factor`), TF 2.15.1. That decay comes before the rule and touches the updated rows
    only follows tensorflow/contrib/opt/python/training/weight_decay_optimizers.py (TF 1.x), the
    file that the proto names.
    """
    if clipping_limit is not None:
        g = _clip(math, g, -clipping_limit, clipping_limit)
    g = _clip(math, g, parameters.clip_gradient_min, parameters.clip_gradient_max)
    if parameters.weight_decay_factor:
        (decay,) = parameters.rounded("weight_decay_factor")
        if parameters.multiply_weight_decay_factor_by_learning_rate:
            decay = decay * lr
        w = w - decay * w
    w, *slots_after = parameters.update(math, lr, g, w, *slots)
    w = _clip(math, w, parameters.clip_weight_min, parameters.clip_weight_max)
    return (w, *slots_after)


def _clip(math: Math, x: Any, low: float | None, high: float | None) -> Any:
    if low is not None:
        x = math.maximum(x, np.float32(low))
    if high is not None:
        x = math.minimum(x, np.float32(high))
    return x
