# SPDX-License-Identifier: Apache-2.0
"""Replaces what tensorflow-estimator 2.15 needs and TensorFlow >= 2.16 no longer has.

`prepare` puts our modules where tensorflow-estimator imports the missing ones. On TensorFlow 2.15,
which has them all, it changes nothing.
"""

import importlib
import importlib.util
import sys

from estimator_emb.compat import legacy_keras, tf_export


def prepare(stand_ins: dict[str, str]) -> None:
    """Makes `import tensorflow_estimator` work on this TensorFlow; a second call changes nothing.

    Args:
      stand_ins: module that tensorflow-estimator imports -> module to use where it is missing.

    Raises:
      ImportError: Keras 3 is already bound to `tf.keras`, or tf-keras is missing.
    """
    legacy_keras.require()
    tf_export.restore_estimator_names()
    for name, stand_in in stand_ins.items():
        if name in sys.modules or importlib.util.find_spec(name) is not None:
            continue
        module = importlib.import_module(stand_in)
        sys.modules[name] = module
        parent, _, attribute = name.rpartition(".")
        setattr(importlib.import_module(parent), attribute, module)
