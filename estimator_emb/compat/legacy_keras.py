"""Binds `tf.keras` to Keras 2.

tensorflow-estimator and `DenseFeatures` are written for Keras 2. From TensorFlow 2.16 on,
`tf.keras` is Keras 3 by default. It is Keras 2 if two conditions hold. The package tf-keras (Keras
2 under another name) is installed, and the environment variable TF_USE_LEGACY_KERAS is set before
the first use of `tf.keras`.
"""

import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

from estimator_emb.compat import installed

_VARIABLE = "TF_USE_LEGACY_KERAS"
_ON = ("1", "true", "True")


def require() -> ModuleType:
    """Makes TensorFlow use Keras 2, and returns TensorFlow. Raises ImportError if it cannot."""
    if "tensorflow" not in sys.modules and not _is_2_15():
        os.environ.setdefault(_VARIABLE, "1")  # Setting it early also avoids loading Keras 3.
    tf = installed.tensorflow()
    newer = installed.release(tf.__version__) >= (2, 16)
    installed.check_beside(tf.__version__, newer or os.environ.get(_VARIABLE) in _ON)
    if not newer:
        return tf
    if os.environ.get(_VARIABLE, "1") not in _ON or _keras_3_is_bound(tf):
        raise ImportError(
            "estimator_emb needs Keras 2, but tf.keras is Keras 3 in this process: set the "
            "environment variable TF_USE_LEGACY_KERAS=1, or import estimator_emb before anything "
            "that uses tf.keras."
        )
    # TensorFlow reads the variable twice: for the search path of `import tensorflow.keras...` when
    # TensorFlow is imported, and for its attribute `keras` on first use.
    os.environ.setdefault(_VARIABLE, "1")
    for module, api in _keras_parents(tf):
        folder = importlib.import_module(f"tf_keras.api.{api}").__path__[0]
        if folder not in module.__path__:
            module.__path__ = [folder, *module.__path__]
    return tf


def _keras_parents(tf: ModuleType) -> tuple[tuple[ModuleType, str], ...]:
    return (tf, "_v2"), (tf.compat.v1, "_v1"), (tf.compat.v2, "_v2")


def _is_2_15() -> bool:
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        return False
    folder = spec.submodule_search_locations[0]
    return os.path.exists(os.path.join(folder, "python", "distribute", "estimator_training.py"))


def _keras_3_is_bound(tf: ModuleType) -> bool:
    for module, _ in _keras_parents(tf):
        keras: Any = vars(module)["keras"]
        # `keras` is a lazy loader. Neither vars() nor this attribute triggers the loading.
        used = getattr(keras, "_tfll_initialized", True)
        if used and not keras.Model.__module__.startswith("tf_keras."):
            return True
    return False
