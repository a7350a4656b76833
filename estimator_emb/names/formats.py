# SPDX-License-Identifier: Apache-2.0
"""The formats in which `estimator-emb export` writes tables: an entry here, and a file each."""

import typing

PRECISIONS = ("float32", "float16")
"""The types of tables in a SavedModel; the first is the default."""


class ExportFormat(typing.NamedTuple):
    """An export format: its module, its line of help, the file to open, and a package it needs."""

    module: str
    line: str
    file: str
    package: str = ""


EXPORT_FORMATS = {
    "npz": ExportFormat("npz", "NumPy's", "tables.npz"),
    "parquet": ExportFormat("parquet", "Apache Parquet", "<table>.parquet", "pyarrow"),
    "safetensors": ExportFormat("safetensors", "safetensors", "tables.safetensors"),
    "saved-model": ExportFormat(
        "saved_model", "a SavedModel that looks up ids or labels", "saved_model.pb"
    ),
    "projector": ExportFormat(
        "projector", "the files of TensorBoard's projector", "projector_config.pbtxt"
    ),
    "tf2": ExportFormat("tf2", "a checkpoint for TPUEmbedding of TensorFlow 2", "ckpt-1.index"),
    "keras": ExportFormat("keras", "weights for Embedding layers of Keras 2 or 3", "tables.h5"),
}
