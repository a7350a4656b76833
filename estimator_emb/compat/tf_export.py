# SPDX-License-Identifier: Apache-2.0
"""Restores the API name 'estimator' to `tensorflow.python.util.tf_export`.

tensorflow-estimator marks its public symbols with a decorator derived from `tf_export.api_export`
and registered under that name (tensorflow_estimator/python/estimator/estimator_export.py).
TensorFlow 2.16 removed the constant and the attribute names that belong to it.
"""


def restore_estimator_names() -> None:
    """Adds `ESTIMATOR_API_NAME` and its attribute names where they are missing."""
    # Imported here, because `legacy_keras.require()` must be what imports TensorFlow first.
    from estimator_emb.private.graphs import tf_export

    if hasattr(tf_export, "ESTIMATOR_API_NAME"):
        return
    tf_export.ESTIMATOR_API_NAME = "estimator"
    attributes = type(tf_export.API_ATTRS[tf_export.KERAS_API_NAME])
    for table, version in ((tf_export.API_ATTRS, ""), (tf_export.API_ATTRS_V1, "_v1")):
        table.setdefault(
            "estimator",
            attributes(f"_estimator_api_names{version}", f"_estimator_api_constants{version}"),
        )
