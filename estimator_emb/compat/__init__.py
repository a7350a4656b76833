# SPDX-License-Identifier: Apache-2.0
"""Replaces what tensorflow-estimator 2.15 needs and TensorFlow >= 2.16 no longer has.

Each missing module has a file here. `prepare` puts these modules where tensorflow-estimator imports
them from. On TensorFlow 2.15, which has them all, it changes nothing.
"""

import importlib
import importlib.util
import sys

from estimator_emb.compat import legacy_keras, tf_export

_MODULES = {
    "tensorflow.python.distribute.estimator_training": "compat.estimator_training",
    "tensorflow.python.tpu.session_support": "compat.session_support",
    "tensorflow.python.tpu.tpu_embedding": "legacy.tpu_embedding",
    "tensorflow.python.tpu.tpu_embedding_gradient": "compat.tpu_embedding_gradient",
}
"""Module that tensorflow-estimator imports -> module of this package that stands in for it."""


def prepare() -> None:
    """Makes `import tensorflow_estimator` work on this TensorFlow; a second call changes nothing.

    Raises:
      ImportError: Keras 3 is already bound to `tf.keras`, or tf-keras is missing.
    """
    legacy_keras.require()
    tf_export.restore_estimator_names()
    for name, file in _MODULES.items():
        if name in sys.modules or importlib.util.find_spec(name) is not None:
            continue
        module = importlib.import_module(f"estimator_emb.{file}")
        sys.modules[name] = module
        parent, _, attribute = name.rpartition(".")
        setattr(importlib.import_module(parent), attribute, module)
