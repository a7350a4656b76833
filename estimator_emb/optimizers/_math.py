# SPDX-License-Identifier: Apache-2.0
"""The operations that an optimizer rule may use, for each array library.

A rule is written once, with Python's arithmetic operators and the functions below. Training runs
it on TensorFlow tensors, and tests on NumPy arrays; native kernels are generated from it.
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
    divide_no_nan: Callable[[Any, Any], Any] | None = None
    """x / y, and 0 where y is 0; if it is None, `quotient` uses `where`."""

    def quotient(self, x: Any, y: Any) -> Any:
        """Returns x / y, and 0 where y is 0; y must be at least 0."""
        if self.divide_no_nan is None:
            return x / self.where(y == 0, INFINITY, y)
        return self.divide_no_nan(x, y)


INFINITY = float("inf")
"""A divisor that makes any finite quotient 0."""

# divide_no_nan, because `where` takes longer than the rest of Adagrad's rule.
TENSORFLOW = Math(tf.sqrt, tf.pow, tf.minimum, tf.maximum, tf.sign, tf.where, tf.math.divide_no_nan)
NUMPY = Math(np.sqrt, np.power, np.minimum, np.maximum, np.sign, np.where)
