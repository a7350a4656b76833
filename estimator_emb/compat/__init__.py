"""Provides the modules and names that tensorflow-estimator 2.15 needs and TensorFlow 2.16 removed.

`prepare` puts our modules where tensorflow-estimator imports the removed modules. On TensorFlow
2.15 they all exist, and `prepare` changes nothing.
"""

import importlib
import importlib.util
import logging
import sys

from estimator_emb.catalog.legacy import LACKING
from estimator_emb.compat import installed, legacy_keras


def prepare(tpu_embedding: str) -> None:
    """Makes `import tensorflow_estimator` work on this TensorFlow. A second call is a no-op.

    The module named `tpu_embedding` replaces tensorflow.python.tpu.tpu_embedding. The other
    replacements are in this folder. Warns about a TensorFlow newer than any that was tried. Raises
    ImportError if `tf.keras` is already bound to Keras 3, tf-keras is missing, or a private name is
    missing in a newer TensorFlow.
    """
    tensorflow_version = legacy_keras.require().__version__
    _restore_api_names()
    for name in LACKING:
        if name in sys.modules or importlib.util.find_spec(name) is not None:
            continue
        parent, _, attribute = name.rpartition(".")
        stand_in = tpu_embedding if attribute == "tpu_embedding" else f"{__name__}.{attribute}"
        module = sys.modules[name] = importlib.import_module(stand_in)
        setattr(importlib.import_module(parent), attribute, module)
    from estimator_emb.compat import internals

    if warning := installed.newer_than_tried(tensorflow_version, internals):
        logging.getLogger("estimator_emb").warning(warning)


def _restore_api_names() -> None:
    """Restores the API name 'estimator', which TensorFlow 2.16 removed from `tf_export`.

    tensorflow-estimator marks its public symbols with a decorator registered under that name
    (tensorflow_estimator/python/estimator/estimator_export.py).
    """
    # Imported here, because `legacy_keras.require()` must import TensorFlow first.
    from estimator_emb.compat.internals.graphs import tf_export

    if hasattr(tf_export, "ESTIMATOR_API_NAME"):
        return
    tf_export.ESTIMATOR_API_NAME = "estimator"
    attributes = type(tf_export.API_ATTRS[tf_export.KERAS_API_NAME])
    for table, version in ((tf_export.API_ATTRS, ""), (tf_export.API_ATTRS_V1, "_v1")):
        table.setdefault(
            "estimator",
            attributes(f"_estimator_api_names{version}", f"_estimator_api_constants{version}"),
        )
