# SPDX-License-Identifier: Apache-2.0
"""Makes `import tensorflow` mean TensorFlow 1."""

from __future__ import annotations

import importlib
import sys

from estimator_emb.compat import contrib
from estimator_emb.compat.install import SharedModule, install

_IMPORTED_BEFORE = (
    "estimator_emb.embedding",
    "estimator_emb.flags",
    "estimator_emb.keras",
    "feature_columns",
    "tensorflow_estimator.python.estimator.keras_lib",
)
"""Modules whose `import tensorflow` means TensorFlow 2."""


def bind() -> None:
    """Gives programs TensorFlow 1's API, behaviour and `tf.contrib`; this cannot be undone.

    `import tensorflow` gives the names of `tensorflow.compat.v1`, with `contrib` of
    `estimator_emb.compat.contrib`. Graphs, sessions, variables, shapes and comparison of tensors
    are those of TensorFlow 1 (`tf.compat.v1.disable_v2_behavior`).
    """
    import tensorflow as tf2

    install()
    for name in _IMPORTED_BEFORE:
        importlib.import_module(name)
    v1 = importlib.import_module("tensorflow.compat.v1")
    v1.disable_v2_behavior()
    own = {
        name: getattr(tf2, name)
        for name in ("__name__", "__file__", "__path__", "__spec__", "__loader__", "__package__")
    }
    # Keras and others use this attribute to import `tensorflow.compat.v2 as tf`.
    own["compat"] = tf2.compat
    own["contrib"] = contrib.install()
    sys.modules["tensorflow"] = SharedModule(v1, own)
