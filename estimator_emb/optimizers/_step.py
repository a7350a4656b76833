# SPDX-License-Identifier: Apache-2.0
"""A step of any optimizer: its rule, and the limits and the decay that surround every rule.

The order is the hardware's, as far as it is documented: clip the summed gradient, decay the
weights, run the rule, clip the weights. Slots are never clipped.
"""

from typing import Any

import numpy as np

from estimator_emb.optimizers._math import INFINITY, Math
from estimator_emb.optimizers._parameters import OptimizationParameters


def step(
    parameters: OptimizationParameters,
    math: Math,
    lr: Any,
    g: Any,
    w: Any,
    slots: tuple[Any, ...],
    clipping_limit: float | None = None,
    complete: bool = False,
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
      complete: True computes limits and decay also where there are none, as infinite and 0, so that
        optimizers that differ only in numbers are the same program.

    Returns:
      `(w, *slots)` after the step, in the shapes and the order in which they came.

    Source: optimization_parameters.proto (`clipping_limits`, `gradient_clipping_limits`,
    `weight_decay_factor`), TF 2.15.1. It refers to
    tensorflow/contrib/opt/python/training/weight_decay_optimizers.py (TF 1.x), in which weights
    decay before the rule, and only those of updated rows.
    """
    if clipping_limit is not None or complete:
        limit = INFINITY if clipping_limit is None else clipping_limit
        g = _clip(math, g, -limit, limit)
    g = _clip(math, g, parameters.clip_gradient_min, parameters.clip_gradient_max, complete)
    if parameters.weight_decay_factor or complete:
        w = _decayed(parameters, math, lr, w, complete)
    w, *new_slots = parameters.update(math, lr, g, w, *slots)
    w = _clip(math, w, parameters.clip_weight_min, parameters.clip_weight_max, complete)
    return (w, *new_slots)


def _decayed(
    parameters: OptimizationParameters, math: Math, lr: Any, w: Any, complete: bool
) -> Any:
    decay = np.float32(parameters.weight_decay_factor or 0)
    by_rate = parameters.multiply_weight_decay_factor_by_learning_rate
    if not complete:
        return w - (decay * lr if by_rate else decay) * w
    none = np.float32(0)
    both = lr * (decay if by_rate else none) + (none if by_rate else decay)
    # Without decay, an infinite weight stays what it is.
    return math.where(both == 0, w, w - both * w)


def _clip(math: Math, x: Any, low: float | None, high: float | None, complete: bool = False) -> Any:
    if low is not None or complete:
        x = math.maximum(x, np.float32(-INFINITY if low is None else low))
    if high is not None or complete:
        x = math.minimum(x, np.float32(INFINITY if high is None else high))
    return x
