# SPDX-License-Identifier: Apache-2.0
"""Rejects optimizers that scale the loss, because tables would train with the scaled loss.

For float16, such an optimizer multiplies the loss, and divides only the gradients of the variables
that it updates, not those of the tables.
"""

from typing import Any

import tensorflow as tf

from estimator_emb.checks import in_model_fn
from estimator_emb.private import patches

_SCALING = tf.compat.v1.mixed_precision.MixedPrecisionLossScaleOptimizer


def watch() -> None:
    """Makes these optimizers raise ValueError in a model_fn with embedding tables."""
    patches.LASTING.wrap(_SCALING, "compute_gradients", _refusing)


def _refusing(compute_gradients: Any) -> Any:
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        if in_model_fn.is_running(with_tables=True):
            raise ValueError(
                f"{type(self).__name__} scales the loss, and embedding tables would train by the "
                "scaled one. Give the optimizer that it wraps, without "
                "enable_mixed_precision_graph_rewrite: compute in bfloat16, which needs no scale, "
                "or in float32."
            )
        return compute_gradients(self, *args, **kwargs)

    return watched
