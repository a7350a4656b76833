"""Writes tables as a file of safetensors."""

import json
import struct
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.formats.exporting import TableFormat, write_labels
from estimator_emb.checkpoints.reading.saved_tables import SavedTable

_TYPES = {"float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}


class _Safetensors(TableFormat):
    """Writes each table and slot as a tensor of its name, and files of labels.

    The safetensors library holds all tensors in memory, so this class writes the format itself.

    Source: https://huggingface.co/docs/safetensors, "Format".
    """

    widens = False
    lines_of = "a file of labels"

    def names(self, tables: Sequence[SavedTable]) -> dict[str, str]:
        return super().names([table for table in tables if table.vocabulary])

    def write(self, folder: str, tables: Sequence[SavedTable]) -> None:
        header: dict[str, Any] = {}
        position = 0
        for table in tables:
            size = table.rows * table.dimension * table.dtype.itemsize
            for variable in table.variables:
                header[variable] = {
                    "dtype": _TYPES[table.dtype.name],
                    "shape": [table.rows, table.dimension],
                    "data_offsets": [position, position + size],
                }
                position += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with tf.io.gfile.GFile(f"{folder}/tables.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for table in tables:
                for variable in table.variables:
                    for piece in table.pieces(variable):
                        file.write(piece.tobytes())
        for table in tables:
            if table.vocabulary:
                write_labels(f"{folder}/{table.safe_name}.labels.txt", table, "")


FORMAT = _Safetensors()
