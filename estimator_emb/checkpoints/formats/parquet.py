"""Writes tables as files of Apache Parquet."""

import importlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.formats.exporting import Sequential, TableFormat
from estimator_emb.checkpoints.reading.saved_tables import SavedTable


class _Parquet(TableFormat):
    """Writes the columns `id`, `label`, `embedding` and slots. Vectors are fixed-size lists."""

    def check_package(self) -> None:
        try:
            importlib.import_module("pyarrow.parquet")
        except ImportError as error:
            problem = "" if isinstance(error, ModuleNotFoundError) else f" ({error})"
            old = np.lib.NumpyVersion(np.__version__) < "2.0.0"
            version = "'pyarrow<22', as newer ones want NumPy 2" if old else "pyarrow"
            raise ValueError(
                f"export: parquet needs pyarrow: pip install {version}{problem}."
            ) from None

    def write(self, folder: str, tables: Sequence[SavedTable]) -> None:
        import pyarrow
        from pyarrow import parquet

        for table in tables:
            value = pyarrow.list_(pyarrow.from_numpy_dtype(table.dtype), table.dimension)
            columns = ["embedding"] + [
                variable.removeprefix(f"{table.name}/") for variable in table.variables[1:]
            ]
            fields = [pyarrow.field("id", pyarrow.int64(), nullable=False)]
            fields += [pyarrow.field("label", pyarrow.string())] if table.vocabulary else []
            fields += [pyarrow.field(column, value, nullable=False) for column in columns]
            schema = pyarrow.schema(fields, metadata={"variable": table.name})
            with (
                tf.io.gfile.GFile(f"{folder}/{table.safe_name}.parquet", "wb") as file,
                parquet.ParquetWriter(pyarrow.PythonFile(Sequential(file), "w"), schema) as writer,
            ):
                labels = table.labels() if table.vocabulary else None
                spans = table.values.spans(table.name)
                all_pieces = [table.pieces(variable) for variable in table.variables]
                for (start, end), *pieces in zip(spans, *all_pieces, strict=True):
                    ids = np.arange(start, end, dtype=np.int64)
                    arrays = [pyarrow.array(ids)]
                    arrays += [pyarrow.array(next(labels), pyarrow.string())] if labels else []
                    arrays += [
                        pyarrow.FixedSizeListArray.from_arrays(piece.reshape(-1), type=value)
                        for piece in pieces
                    ]
                    writer.write_batch(pyarrow.record_batch(arrays, schema=schema))


FORMAT = _Parquet()
