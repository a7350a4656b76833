"""Replaces `tf.contrib.learn.monitors`. The monitors themselves no longer exist."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf


def replace_monitors_with_hooks(monitors_or_hooks: Iterable[Any] | None, estimator: Any) -> list:
    """Returns the hooks. Raises TypeError for a monitor, because only hooks still exist."""
    hooks = list(monitors_or_hooks or [])
    for one in hooks:
        if not isinstance(one, tf.compat.v1.train.SessionRunHook):
            raise TypeError(
                "replace_monitors_with_hooks: monitors left TensorFlow with version 2; make it a "
                f"SessionRunHook of tf.train; got {one!r}."
            )
    return hooks
