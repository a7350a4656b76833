"""Finds variables that Adam changes only because of rounding noise.

In float32, a gradient that should be 0 contains noise, and each way to compute it gives other
noise. Adam divides a gradient by its size, so it turns even the smallest noise into a step.
"""

import math
from collections.abc import Iterable

import numpy as np

from estimator_emb.checkpoints.files.checkpoint_reader import CheckpointReader

_SLOTS = (("/Adam", "/Adam_1"), ("/Adam/m", "/Adam/v"))
"""First and second moment: names in `tf.compat.v1.train`, then names for tables."""
_NOISE = 1e-7
_OF_LARGEST = 1e-6
"""Gradients are noise if they are at most `_NOISE` and at most this part of the largest gradient.

The root of a second moment stands for a gradient. It is at least 0.03 times the gradient.
"""


Groups = dict[str, tuple[str, ...]]
"""Name of a variable or slot -> the variable and its slots."""


def groups(values: CheckpointReader) -> tuple[Groups, Groups]:
    """Returns the groups that noise alone changes, and the groups that never had a gradient."""
    sizes: dict[tuple[str, ...], float] = {}
    for name in values.shapes:
        for first, second in _SLOTS:
            group = name, name + first, name + second
            if all(one in values.shapes for one in group):
                sizes[group] = math.sqrt(_largest(values.pieces(group[-1])))
    limit = min(_NOISE, _OF_LARGEST * max(sizes.values(), default=0.0))
    small = {name: group for group, size in sizes.items() if 0 < size <= limit for name in group}
    return small, {name: group for group, size in sizes.items() if not size for name in group}


def _largest(pieces: Iterable[np.ndarray]) -> float:
    return max((float(np.max(np.abs(piece), initial=0.0)) for piece in pieces), default=0.0)
