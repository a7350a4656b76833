"""Replaces what tensorflow-estimator 2.15 needs and TensorFlow >= 2.16 no longer has.

`prepare` puts our modules where tensorflow-estimator imports the missing ones. On TensorFlow 2.15,
which has them all, it changes nothing.
"""

import importlib
import importlib.util
import logging
import sys

from estimator_emb.catalog.legacy import LACKING
from estimator_emb.compat import installed, legacy_keras


def prepare(tpu_embedding: str) -> None:
    """Makes `import tensorflow_estimator` work on this TensorFlow; a second call changes nothing.

    The module named `tpu_embedding` stands for tensorflow.python.tpu.tpu_embedding; the other
    stand-ins are in this folder. Warns of a TensorFlow that is newer than any that was tried.
    Raises ImportError where Keras 3 is already bound to `tf.keras`, tf-keras is missing, or a newer
    TensorFlow lacks a private name.
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
    """Restores 'estimator' to `tensorflow.python.util.tf_export`, which TensorFlow 2.16 cleared.

    tensorflow-estimator marks its public symbols with a decorator that is registered under it
    (tensorflow_estimator/python/estimator/estimator_export.py).
    """
    # Imported here, because `legacy_keras.require()` must be what imports TensorFlow first.
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
