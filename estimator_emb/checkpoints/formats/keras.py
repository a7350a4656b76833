"""Writes tables as the weights of `Embedding` layers of Keras."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from estimator_emb.checkpoints.formats.exporting import TableFormat
from estimator_emb.checkpoints.reading.saved_tables import SavedTable

_LARGEST_ATTRIBUTE = 64512
"""Keras splits attributes with more bytes, because HDF5 limits the size of an object's header."""


class _Keras(TableFormat):
    """The HDF5 format of Keras 2. Keras 3 reads it too.

    A file has a group for each layer. The group's attribute `weight_names` names its datasets. Here
    the only dataset is `embeddings`, [rows, dimension].

    Source: `save_weights_to_hdf5_group` of tf_keras/src/saving/legacy/hdf5_format.py, 2.15.1, and
    `load_weights_from_hdf5_group_by_name` of keras/src/legacy/saving/legacy_h5_format.py, 3.15.1.
    """

    def write(self, folder: str, tables: Sequence[SavedTable]) -> None:
        import h5py

        # HDF5 seeks in its file while it writes, so `GFile` does not work.
        with h5py.File(f"{folder}/tables.h5", "w") as file:
            file.attrs["backend"] = "tensorflow"
            file.attrs["keras_version"] = "2.15.0"
            _write_names(file, "layer_names", [table.safe_name for table in tables])
            for table in tables:
                group = file.create_group(table.safe_name)
                name = f"{table.safe_name}/embeddings:0"
                _write_names(group, "weight_names", [name])
                values = group.create_dataset(name, table.shape, table.dtype)
                start = 0
                for piece in table.pieces(table.name):
                    values[start : start + len(piece)] = piece
                    start += len(piece)

    def told(self, folder: str, slots: bool) -> str:
        import h5py

        file = f"{folder}/tables.h5"
        lines = [f"\nmodel.load_weights({file!r}, by_name=True) fills these layers:\n"]
        with h5py.File(file) as opened:
            for name in opened:
                rows, dimension = opened[f"{name}/{name}/embeddings:0"].shape
                lines.append(f"Embedding({rows}, {dimension}, name={name!r})")
        return "\n".join(lines)


def _write_names(group: Any, attribute: str, names: Sequence[str]) -> None:
    """Writes names as a single attribute, or as several numbered attributes if they are long."""
    encoded = [name.encode() for name in names]
    parts = 1
    while any(
        np.asarray(part).nbytes > _LARGEST_ATTRIBUTE for part in np.array_split(encoded, parts)
    ):
        parts += 1
    for number, part in enumerate(np.array_split(encoded, parts)):
        group.attrs[attribute if parts == 1 else f"{attribute}{number}"] = part


FORMAT = _Keras()
