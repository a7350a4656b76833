"""Writes tables as arrays of NumPy."""

import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.formats.exporting import Sequential, TableFormat
from estimator_emb.checkpoints.reading.saved_tables import SavedTable


class _Npz(TableFormat):
    """Writes each table and slot as an array of its name, and `<table>/labels`, not pickled."""

    def write(self, folder: str, tables: Sequence[SavedTable]) -> None:
        with (
            tf.io.gfile.GFile(f"{folder}/tables.npz", "wb") as file,
            zipfile.ZipFile(Sequential(file), "w") as archive,
        ):
            for table in tables:
                for variable in table.variables:
                    with archive.open(
                        f"{_array_name(table, variable)}.npy", "w", force_zip64=True
                    ) as array:
                        _write_header(array, table.dtype, table.shape)
                        for piece in table.pieces(variable):
                            array.write(piece.tobytes())
                if table.vocabulary:
                    dtype = np.dtype(f"<U{max(1, table.vocabulary.longest)}")
                    name = f"{_array_name(table, table.name)}/labels.npy"
                    with archive.open(name, "w", force_zip64=True) as array:
                        _write_header(array, dtype, (table.rows,))
                        for labels in table.labels():
                            array.write(np.array([one or "" for one in labels], dtype).tobytes())

    def names(self, tables: Sequence[SavedTable]) -> dict[str, str]:
        return {_array_name(table, one): one for table in tables for one in table.variables}


def _array_name(table: SavedTable, variable: str) -> str:
    is_safe = (
        table.name.isprintable()
        and not set(table.name) & set("\\:")
        and all(part.strip(". ") for part in table.name.split("/"))
    )
    return variable if is_safe else table.safe_name + variable.removeprefix(table.name)


def _write_header(file: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(file, header)


FORMAT = _Npz()
