# SPDX-License-Identifier: Apache-2.0
"""The functions of `tf.contrib.data` that are arguments of `dataset.batch` today."""

from collections.abc import Callable
from typing import Any


def batch_and_drop_remainder(batch_size: Any) -> Callable[[Any], Any]:
    """Returns a function for `dataset.apply` that makes batches, without a smaller last one."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(
    batch_size: Any, padded_shapes: Any, padding_values: Any = None
) -> Callable[[Any], Any]:
    """Returns a function for `dataset.apply` that makes padded batches, without a smaller last one.

    `padded_shapes` has a shape for each component, with None or -1 for the longest of a batch.
    Components are padded with `padding_values`, by default 0 or ''.
    """
    return lambda dataset: dataset.padded_batch(
        batch_size, padded_shapes, padding_values, drop_remainder=True
    )
