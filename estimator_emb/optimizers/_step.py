"""Runs a step of any optimizer: its rule, with the limits and the decay around it.

The order is the hardware's, as far as it is documented: clip the summed gradient, decay the
weights, run the rule, clip the weights. Slots are never clipped.
"""

from typing import Any

import numpy as np

from estimator_emb.optimizers._parameters import Math, OptimizationParameters


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
    """Returns `(w, *slots)`, rows of a table and of its slots, after a step.

    The arguments are the same as in `OptimizationParameters.update`, but `g` is not clipped yet.
    The `clipping_limit` of the `EmbeddingConfigSpec` clips `g` to [-limit, +limit], before the
    optimizer's own limits. `complete` also computes missing limits, as infinity, and missing decay,
    as 0. Then optimizers that differ only in numbers are the same program.

    Source: optimization_parameters.proto (`clipping_limits`, `gradient_clipping_limits`,
    `weight_decay_factor`), TF 2.15.1. It refers to
    tensorflow/contrib/opt/python/training/weight_decay_optimizers.py (TF 1.x), in which only the
    weights of updated rows decay, before the rule.
    """
    if clipping_limit is not None or complete:
        limit = np.inf if clipping_limit is None else clipping_limit
        g = _clip(math, g, -limit, limit, complete)
    g = _clip(math, g, parameters.clip_gradient_min, parameters.clip_gradient_max, complete)
    if parameters.weight_decay_factor or complete:
        w = _decayed(parameters, math, lr, w, complete)
    w, *new_slots = parameters.update(math, lr, g, w, *slots)
    w = _clip(math, w, parameters.clip_weight_min, parameters.clip_weight_max, complete)
    return (w, *new_slots)


def gradient_limits(
    parameters: OptimizationParameters, clipping_limit: float | None
) -> tuple[float, float]:
    """Merges both gradient limits of `step` into (low, high). Infinity means no limit."""
    low, high = parameters.clip_gradient_min, parameters.clip_gradient_max
    low = -np.inf if low is None else float(low)
    high = np.inf if high is None else float(high)
    if clipping_limit is None:
        return low, high
    limit = float(clipping_limit)
    return min(max(-limit, low), high), min(max(limit, low), high)


def _decayed(
    parameters: OptimizationParameters, math: Math, lr: Any, w: Any, complete: bool
) -> Any:
    decay = np.float32(parameters.weight_decay_factor or 0)
    by_rate = parameters.multiply_weight_decay_factor_by_learning_rate
    if not complete:
        return w - (decay * lr if by_rate else decay) * w
    none = np.float32(0)
    both = lr * (decay if by_rate else none) + (none if by_rate else decay)
    # Without decay, an infinite weight must not become NaN.
    return math.where(both == 0, w, w - both * w)


def _clip(math: Math, x: Any, low: float | None, high: float | None, complete: bool) -> Any:
    if low is not None or complete:
        x = math.maximum(x, np.float32(-np.inf if low is None else low))
    if high is not None or complete:
        x = math.minimum(x, np.float32(np.inf if high is None else high))
    return x
