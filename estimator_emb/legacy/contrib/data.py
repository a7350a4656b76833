# SPDX-License-Identifier: Apache-2.0
"""The functions of `tf.contrib.data` that are arguments of `dataset.batch` today."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def batch_and_drop_remainder(batch_size: Any) -> Callable[[Any], Any]:
    """Returns what `dataset.apply` takes to make batches and leave out a smaller last one.

    Args:
      batch_size: samples in a batch, an integer or an int64 scalar.
    """
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(
    batch_size: Any, padded_shapes: Any, padding_values: Any = None
) -> Callable[[Any], Any]:
    """Returns what `dataset.apply` takes to make padded batches and leave out a smaller last one.

    Args:
      batch_size: samples in a batch, an integer or an int64 scalar.
      padded_shapes: the shape of each component of a sample; None or -1 for the longest of a batch.
      padding_values: what to pad each component with; None for 0 or ''.
    """
    return lambda dataset: dataset.padded_batch(
        batch_size, padded_shapes, padding_values, drop_remainder=True
    )
