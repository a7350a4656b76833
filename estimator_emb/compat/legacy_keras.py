# SPDX-License-Identifier: Apache-2.0
"""Binds `tf.keras` to Keras 2.

tensorflow-estimator and `DenseFeatures` are written for Keras 2. From TensorFlow 2.16 on, `tf.keras`
is Keras 3 unless the environment variable TF_USE_LEGACY_KERAS is set before its first use and the
package tf-keras, which is Keras 2 under another name, is installed.
"""

import importlib.util
import os
import sys
from types import ModuleType

_VARIABLE = "TF_USE_LEGACY_KERAS"
_ON = ("1", "true", "True")


def require() -> None:
    """Asks TensorFlow for Keras 2; on TensorFlow 2.15 it is what there is.

    Raises:
      ImportError: `tf.keras` is Keras 3 already, or tf-keras is not installed.
    """
    if "tensorflow" not in sys.modules and _VARIABLE not in os.environ and not _is_2_15():
        os.environ[_VARIABLE] = "1"  # Before the import it also spares loading Keras 3.
    import tensorflow as tf

    if tuple(int(part) for part in tf.__version__.split(".")[:2]) < (2, 16):
        return
    if importlib.util.find_spec("tf_keras") is None:
        raise ImportError(
            f"estimator_emb needs Keras 2, and the package tf-keras, which brings it to "
            f"TensorFlow {tf.__version__}, is not installed: pip install tf-keras"
        )
    if os.environ.get(_VARIABLE, "1") not in _ON or _keras_3_is_bound(tf):
        raise ImportError(
            "estimator_emb needs Keras 2, but tf.keras is Keras 3 in this process: set the "
            "environment variable TF_USE_LEGACY_KERAS=1, or import estimator_emb before anything "
            "that uses tf.keras."
        )
    if os.environ.get(_VARIABLE) not in _ON:
        # TensorFlow came first, without the variable. Its attribute `keras` is resolved on first
        # use, but the search path of `import tensorflow.keras...` is set already.
        os.environ[_VARIABLE] = "1"
        for module, api in ((tf, "_v2"), (tf.compat.v1, "_v1")):
            folder = importlib.util.find_spec(f"tf_keras.api.{api}.keras")
            if folder is not None and folder.submodule_search_locations:
                parent = os.path.dirname(folder.submodule_search_locations[0])
                module.__path__ = [parent, *module.__path__]


def _is_2_15() -> bool:
    """Whether the TensorFlow that would be imported still has what 2.16 dropped."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        return False
    folder = spec.submodule_search_locations[0]
    return os.path.exists(os.path.join(folder, "python", "distribute", "estimator_training.py"))


def _keras_3_is_bound(tf: ModuleType) -> bool:
    for module in (tf, tf.compat.v1):
        loader = vars(module).get("keras")
        if getattr(loader, "_tfll_initialized", False):
            return loader._tfll_keras_version != "tf_keras"
    return False
