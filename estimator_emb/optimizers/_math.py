# SPDX-License-Identifier: Apache-2.0
"""The operations an optimizer rule may use, for each kind of array it runs on.

A rule is written once, with Python's arithmetic operators and the functions below. Training runs
it on TensorFlow tensors; the native kernels and the functions that preflight compiles for
SparseCore are generated from it; the tests run it on NumPy arrays.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Math:
    """The elementwise functions of one array library."""

    sqrt: Callable[[Any], Any]
    pow: Callable[[Any, Any], Any]
    minimum: Callable[[Any, Any], Any]
    maximum: Callable[[Any, Any], Any]
    sign: Callable[[Any], Any]
    where: Callable[[Any, Any, Any], Any]
    """`where(condition, x, y)`: x where the condition holds, else y."""
    divide_no_nan: Callable[[Any, Any], Any] | None = None
    """`divide_no_nan(x, y)`: x / y, and 0 where y is 0. None has `quotient` use `where` instead."""

    def quotient(self, x: Any, y: Any) -> Any:
        """Returns x / y, and 0 where y is 0; y is at least 0."""
        if self.divide_no_nan is None:
            return x / self.where(y == 0, INFINITY, y)
        return self.divide_no_nan(x, y)


INFINITY = float("inf")
"""A divisor that makes any finite quotient 0."""

# With divide_no_nan: to compare and choose by `where` takes longer than the rest of Adagrad's rule.
TENSORFLOW = Math(tf.sqrt, tf.pow, tf.minimum, tf.maximum, tf.sign, tf.where, tf.math.divide_no_nan)
NUMPY = Math(np.sqrt, np.power, np.minimum, np.maximum, np.sign, np.where)
