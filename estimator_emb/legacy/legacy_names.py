# SPDX-License-Identifier: Apache-2.0
"""Advice for programs that use a name of TensorFlow 1."""

from __future__ import annotations

import re
from types import ModuleType

import tensorflow as tf

from estimator_emb.legacy import contrib

_API = re.compile(
    r"tensorflow(\._api\.v2(\.v2)?)?(\.compat\.v2)?(\.(?P<tensorflow>.+))?"
    r"|tensorflow_estimator\.python\.estimator\.api\._v2\.(?P<estimator>.+)"
)


def advice(error: BaseException) -> str | None:
    """Returns advice on where the name is that an error is about; None for other errors.

    Args:
      error: what ended a program that ran with TensorFlow 2's API.
    """
    if isinstance(error, ModuleNotFoundError):
        name = error.name or ""
        if name == "tensorflow.contrib" or name.startswith("tensorflow.contrib."):
            return "tf.contrib is a part of TensorFlow 1: try --tf-v1."
    if not isinstance(error, AttributeError) or not isinstance(error.obj, ModuleType):
        return None
    match = _API.fullmatch(error.obj.__name__)
    if match is None or ".compat.v1" in error.obj.__name__:
        return None
    path = ".".join(
        part for part in (match["tensorflow"] or match["estimator"], error.name) if part
    )
    if path == "contrib":
        return "tf.contrib is a part of TensorFlow 1: try --tf-v1."
    if contrib.has_path(tf.compat.v1, path):
        return (
            f"tf.{path} is a name of TensorFlow 1: try --tf-v1. In TensorFlow 2 it is "
            f"tf.compat.v1.{path}."
        )
    return None
