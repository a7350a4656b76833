# SPDX-License-Identifier: Apache-2.0
"""A step of any optimizer: its rule, and the limits and the decay that surround every rule.

The order is the hardware's, as far as it is documented: clip the summed gradient, decay the
weights, run the rule, clip the weights. Slots are never clipped.
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
    """Returns rows of a table and of its slots after one step.

    Args:
      parameters: the optimizer.
      math: the array library the rows belong to.
      lr: learning rate, float32 scalar.
      g: summed gradient of each row, float32 [rows, dimension].
      w: weights of the rows, in the same shape and dtype.
      slots: each slot of the rows, likewise, in the order of `parameters.slots`.
      clipping_limit: that of the `EmbeddingConfigSpec`, which clips the summed gradient to
        [-limit, +limit] before the optimizer's own gradient limits do; None means no limit.

    Returns:
      `(w, *slots)` after the step, in the shapes and the order in which they came.

    Source: optimization_parameters.proto (`clipping_limits`, `gradient_clipping_limits`,
    `weight_decay_factor`), TF 2.15.1. It refers to
    tensorflow/contrib/opt/python/training/weight_decay_optimizers.py (TF 1.x), in which weights
    decay before the rule, and only those of updated rows.
    """
    if clipping_limit is not None:
        g = _clip(math, g, -clipping_limit, clipping_limit)
    g = _clip(math, g, parameters.clip_gradient_min, parameters.clip_gradient_max)
    if parameters.weight_decay_factor:
        (decay,) = parameters.rounded("weight_decay_factor")
        if parameters.multiply_weight_decay_factor_by_learning_rate:
            decay = decay * lr
        w = w - decay * w
    w, *new_slots = parameters.update(math, lr, g, w, *slots)
    w = _clip(math, w, parameters.clip_weight_min, parameters.clip_weight_max)
    return (w, *new_slots)


def _clip(math: Math, x: Any, low: float | None, high: float | None) -> Any:
    if low is not None:
        x = math.maximum(x, np.float32(low))
    if high is not None:
        x = math.minimum(x, np.float32(high))
    return x
