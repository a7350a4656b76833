"""The arithmetic of the TPU embedding hardware in NumPy float64, as the expected results of tests.

Written independently of `estimator_emb` on purpose, and never imports it. A rule takes the learning
rate, gradient, weights and slots (in the order of the load and retrieve ops), then its
hyper-parameters by name. It returns the new weights and slots.
"""

import numpy as np


def sgd(lr, g, w):
    return (w - lr * g,)


def adagrad(lr, g, w, a):
    a = a + g**2
    return w - lr * g / np.sqrt(a), a


def adagrad_momentum(lr, g, w, a, m, *, momentum, use_nesterov, exponent, beta2, epsilon):
    a = a + g**2 if beta2 == 1 else beta2 * a + (1 - beta2) * g**2
    scaled = g * (a + epsilon) ** (-1 / exponent)
    m = momentum * m + scaled
    direction = momentum * m + scaled if use_nesterov else m
    return w - lr * direction, a, m


def adam(lr, g, w, m, v, *, beta1, beta2, epsilon, sum_inside_sqrt):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    denominator = np.sqrt(v + epsilon**2) if sum_inside_sqrt else np.sqrt(v) + epsilon
    return w - lr * m / denominator, m, v


def ftrl(lr, g, w, a, z, *, learning_rate_power, l1, l2, beta, multiply_linear_by_learning_rate):
    before, a = a**-learning_rate_power, a + g**2
    after = a**-learning_rate_power
    if multiply_linear_by_learning_rate:
        z = z + lr * g - (after - before) * w
        limit = lr * l1
        denominator = after + beta + 2 * lr * l2
    else:
        z = z + g - (after - before) * w / lr
        limit = l1
        denominator = (after + beta) / lr + 2 * l2
    numerator = np.clip(z, -limit, limit) - z
    empty = (numerator == 0) & (denominator == 0)
    return np.where(empty, 0, numerator / np.where(empty, 1, denominator)), a, z


def momentum(lr, g, w, m, *, momentum, use_nesterov):
    m = momentum * m + g
    return w - lr * (g + momentum * m if use_nesterov else m), m


def rmsprop(lr, g, w, ms, mom, *, rho, momentum, epsilon):
    ms = rho * ms + (1 - rho) * g**2
    mom = momentum * mom + lr * g / np.sqrt(ms + epsilon)
    return w - mom, ms, mom


def centered_rmsprop(lr, g, w, ms, mom, mg, *, rho, momentum, epsilon):
    ms = rho * ms + (1 - rho) * g**2
    mg = rho * mg + (1 - rho) * g
    mom = momentum * mom + lr * g / np.sqrt(ms - mg**2 + epsilon)
    return w - mom, ms, mom, mg


def adadelta(lr, g, w, a, u, *, rho, epsilon):
    a = rho * a + (1 - rho) * g**2
    d = g * np.sqrt(u + epsilon) / np.sqrt(a + epsilon)
    return w - lr * d, a, rho * u + (1 - rho) * d**2


def proximal_adagrad(lr, g, w, a, *, l1, l2):
    a = a + g**2
    return _proximal(w, lr / np.sqrt(a), g, l1, l2), a


def proximal_yogi(lr, g, w, v, m, *, beta1, beta2, epsilon, l1, l2):
    m = beta1 * m + (1 - beta1) * g
    v = v + (1 - beta2) * np.sign(g**2 - v) * g**2
    return _proximal(w, lr / (np.sqrt(v) + epsilon), m, l1, l2), v, m


def _proximal(w, rate, direction, l1, l2):
    p = w - rate * direction
    if l1 > 0:
        p = np.sign(p) * np.maximum(np.abs(p) - rate * l1, 0)
    return p / (1 + l2 * rate)


def frequency_estimator(lr, g, w, last, *, tau, max_delta, outlier_threshold):
    """Estimates how often each row occurs. `lr` is the step number. The gradient is unused."""
    delta = lr - last
    clipped = np.minimum(delta, max_delta)
    outlier = delta >= outlier_threshold * w
    return np.where(outlier, clipped, (1 - tau) * w + tau * clipped), np.full_like(last, lr)


def step(
    rule,
    lr,
    g,
    w,
    slots,
    *,
    clip_gradient=(None, None),
    clip_weight=(None, None),
    weight_decay_factor=None,
    multiply_weight_decay_factor_by_learning_rate=False,
    **hyper,
):
    """Applies a whole step: clips the gradient, decays, applies the rule, clips the weights."""
    g = _clip(g, clip_gradient)
    if weight_decay_factor:
        scale = lr if multiply_weight_decay_factor_by_learning_rate else 1
        w = w - weight_decay_factor * scale * w
    w, *slots = rule(lr, g, w, *slots, **hyper)
    return (_clip(w, clip_weight), *slots)


def _clip(x, limits):
    low, high = limits
    return np.clip(x, -np.inf if low is None else low, np.inf if high is None else high)


def gains(weights, combiner):
    """Returns the factor of each id of a sample, forward and backward: weight / norm."""
    weights = np.asarray(weights, np.float64)
    norm = {"sum": 1.0, "mean": weights.sum(), "sqrtn": np.sqrt((weights**2).sum())}[combiner]
    return weights / norm if norm != 0 else np.zeros_like(weights)


def combine(table, ids, weights, combiner):
    """Returns activations [batch, dimension]. `ids` and `weights` hold a list per sample."""
    table = np.asarray(table, np.float64)
    out = np.zeros((len(ids), table.shape[1]))
    for sample, (i, w) in enumerate(zip(ids, weights, strict=True)):
        for row, gain in zip(i, gains(w, combiner), strict=True):
            out[sample] += gain * table[row]
    return out


def core_order(row, cores):
    """Returns the order in which cores update a row without gradient accumulation."""
    home = row % cores
    return [home, *(core for core in range(cores) if core != home)]


def of_samples(ids, weights, activation_gradient, combiner):
    """Returns `[(row, gradient)]` of a feature's ids, for each sample."""
    return [
        [
            (row, gain * np.asarray(g, np.float64))
            for row, gain in zip(i, gains(w, combiner), strict=True)
        ]
        for i, w, g in zip(ids, weights, activation_gradient, strict=True)
    ]


def of_positions(ids, activation_gradient):
    """Like `of_samples`, for a sequence: its activation has a row for each position."""
    return [
        [(row, np.asarray(of_row, np.float64)) for row, of_row in zip(i, g, strict=False)]
        for i, g in zip(ids, activation_gradient, strict=True)
    ]


def updates_of(features, cores=1):
    """Returns a batch's updates `[(row, gradient)]` in order. `cores` > 1: no accumulation.

    Each core sums gradients within an equal, consecutive slice of the batch. `features` holds
    results of `of_samples` or `of_positions`.
    """
    by_core = [{} for _ in range(cores)]
    for feature in features:
        size = len(feature) // cores
        for sample, occurrences in enumerate(feature):
            summed = by_core[sample // size]
            for row, g in occurrences:
                summed[row] = summed.get(row, 0.0) + g
    return [
        (row, by_core[core][row])
        for row in sorted(set().union(*by_core))
        for core in core_order(row, cores)
        if row in by_core[core]
    ]


def updates(ids, weights, activation_gradient, combiner, cores=1):
    """Returns `updates_of` one feature."""
    return updates_of([of_samples(ids, weights, activation_gradient, combiner)], cores)
