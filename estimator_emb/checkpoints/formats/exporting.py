# SPDX-License-Identifier: Apache-2.0
"""Writes tables of a checkpoint in the formats of other programs: `checkpoint.export`."""

import importlib
import json
import re
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.files import large_variables
from estimator_emb.checkpoints.files.values import Values
from estimator_emb.checkpoints.formats import exported, keras_weights, tensorflow2
from estimator_emb.checkpoints.formats.exported import Exported
from estimator_emb.checkpoints.reading import saved_variables
from estimator_emb.checkpoints.reading import tables as reading


def export(
    path: str,
    destination: str,
    to: str,
    tables: Sequence[str] | None = None,
    slots: bool = False,
    vocabularies: Mapping[str, str] | None = None,
    order: str | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> list[str]:
    """Writes tables of a checkpoint, in the order of their ids, into a new folder.

    The folder appears when it is complete. Tables are read and written in pieces of about 32 MB.
    The values are compared with their checksums. In names of files, and of signatures, `_` stands
    for every character that is no letter, digit, `-` or `.`, or of signatures no letter or digit.
    `names.json` says which variable a name of a file, an array or a Keras layer stands for, if one
    is not the variable's own.

    * 'npz': `tables.npz` for `numpy.load`, with an array for each table and slot under its name,
      and `<table>/labels` where it has a vocabulary. No array is pickled. A table whose name no
      archive may have, such as `../x`, is called as a file would be.
    * 'parquet': `<table>.parquet` with the columns `id`, `label` (with a vocabulary), `embedding`
      and one for each slot, the last two lists of fixed size. It needs pyarrow.
    * 'safetensors': `tables.safetensors` with a tensor for each table and slot under its name, and
      `<table>.labels.txt`, a label on a line, as that format has no strings.
    * 'saved-model': a SavedModel whose signature `<table>` takes `ids`, int64 [n], and returns
      `embeddings`, [n, dimension]; with a vocabulary, `<table>_labels` takes `labels`, string [n].
      An id outside the table, or a label that is not in the vocabulary, is an error. A single table
      is `serving_default` too. It has no slots.
    * 'projector': `<table>.tsv`, `<table>.labels.tsv` and `projector_config.pbtxt`, which
      TensorBoard's projector shows: `tensorboard --logdir DESTINATION`. It has no slots.
    * 'tf2': the checkpoint `ckpt-1` of `tf.train.Checkpoint(embedding=TPUEmbedding(...), step=...)`
      of TensorFlow 2, and `tables.json`, which says what is what in it. Slots of optimizers that
      `tf.tpu.experimental.embedding` lacks are left out, and named there. It has no labels.
      `embedding.checkpoint_to_tensorflow` makes the objects too, from the program's spec.
    * 'keras': `tables.h5`, from which `model.load_weights(file, by_name=True)` of Keras 2 or 3
      fills `Embedding` layers called as the tables, with `_` for `/`. It has neither slots nor
      labels.

    A table of bfloat16 is written as float32, except as safetensors.

    Args:
      path: prefix of a checkpoint, or a model directory, which stands for its latest checkpoint.
      destination: path of the folder, which must not exist.
      to: the format.
      tables: names, as `table` takes them. None, the default, stands for all that `tables` returns.
      slots: True writes slots too. False by default.
      vocabularies: table, by the same name -> file of its labels, one on a line, in the order of
        the ids. Rows beyond its last line have no label, or ''.
      order: as that of `table`.
      progress: function called with the number of bytes done and that of all; None for none.

    Returns:
      The paths of the written files, sorted; of a SavedModel, its folder.

    Raises:
      ValueError: an argument is none of its values, `destination` exists, a table or a vocabulary
        is not there or does not fit, or the checkpoint is damaged.
    """
    if to not in FORMATS:
        raise ValueError(f"export: to must be one of {', '.join(FORMATS)}; got {to!r}.")
    if slots and to in ("saved-model", "projector", "keras"):
        raise ValueError(f"export: {to} has no slots.")
    if vocabularies and to in ("tf2", "keras"):
        raise ValueError(f"export: {to} has no labels; leave vocabularies out.")
    if to == "parquet":
        _check_pyarrow()
    destination = tf.compat.path_to_str(destination).rstrip("/")
    if tf.io.gfile.exists(destination):
        raise ValueError(f"export: {destination!r} exists already.")
    with Values(saved_variables.prefix(path)) as values:
        names = list(reading.tables(values.path)) if tables is None else list(tables)
        if not names:
            raise ValueError(f"export: checkpoint {values.path!r} has no table.")
        unknown = set(vocabularies or {}) - set(names)
        if unknown:
            raise ValueError(
                f"export: there are vocabularies of {sorted(unknown)}, which are not among the "
                f"tables {names}."
            )
        chosen = exported.exported(
            values,
            names,
            slots,
            vocabularies or {},
            order,
            progress,
            widen=to != "safetensors",
            as_files=to != "tf2",
        )
        if to == "saved-model" or to == "projector":
            for table in chosen:
                if table.vocabulary and to == "projector":
                    table.vocabulary.check_single_lines("a projector's file")
                elif table.vocabulary:
                    table.vocabulary.check_distinct()
        if to == "safetensors":
            for table in chosen:
                if table.vocabulary:
                    table.vocabulary.check_single_lines("a file of labels")
        for table in chosen:
            for variable in table.variables:
                values.check(variable)
        with exported.new_folder(destination) as temporary:
            FORMATS[to](temporary, chosen)
            _write_names(temporary, to, chosen)
    if to == "saved-model":
        return [destination]
    return sorted(f"{destination}/{name}" for name in tf.io.gfile.listdir(destination))


def _write_names(folder: str, to: str, tables: Sequence[Exported]) -> None:
    """Writes `names.json`, where names that files or arrays have are not those of variables."""
    if to == "npz":
        names = [(table.array_name(one), one) for table in tables for one in table.variables]
    else:
        # The tensors of a safetensors file have the names of the variables.
        named = [table for table in tables if table.vocabulary or to != "safetensors"]
        names = [(table.safe_name, table.name) for table in named]
    if to not in ("saved-model", "tf2") and any(name != variable for name, variable in names):
        with tf.io.gfile.GFile(f"{folder}/names.json", "w") as file:
            file.write(json.dumps(dict(names), indent=1) + "\n")


def _check_pyarrow() -> None:
    try:
        importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        problem = "" if isinstance(error, ModuleNotFoundError) else f" ({error})"
        old = np.lib.NumpyVersion(np.__version__) < "2.0.0"
        version = "'pyarrow<22', as newer ones want NumPy 2" if old else "pyarrow"
        raise ValueError(
            "export: parquet needs pyarrow, the extra estimator-emb[export]: pip install "
            f"{version}{problem}."
        ) from None


def _write_npz(folder: str, tables: Sequence[Exported]) -> None:
    with (
        tf.io.gfile.GFile(f"{folder}/tables.npz", "wb") as file,
        zipfile.ZipFile(cast(Any, _Sequential(file)), "w") as archive,
    ):
        for table in tables:
            shape = table.rows, table.dimension
            for variable in table.variables:
                with archive.open(
                    f"{table.array_name(variable)}.npy", "w", force_zip64=True
                ) as array:
                    _write_header(array, table.dtype, shape)
                    for piece in table.pieces(variable):
                        array.write(piece.tobytes())
            if table.vocabulary:
                dtype = np.dtype(f"<U{max(1, table.vocabulary.longest)}")
                name = f"{table.array_name(table.name)}/labels.npy"
                with archive.open(name, "w", force_zip64=True) as array:
                    _write_header(array, dtype, (table.rows,))
                    for labels in table.labels():
                        array.write(np.array([one or "" for one in labels], dtype).tobytes())


def _write_header(file: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(file, header)


class _Sequential:
    """A file that a ZipFile writes from its beginning to its end."""

    def __init__(self, file: Any):
        self._file = file

    def write(self, data: Any) -> int:
        self._file.write(bytes(data))
        return len(data)

    def flush(self) -> None:
        self._file.flush()


def _write_parquet(folder: str, tables: Sequence[Exported]) -> None:
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
            parquet.ParquetWriter(pyarrow.PythonFile(_Closable(file), "w"), schema) as writer,
        ):
            labels = table.labels() if table.vocabulary else None
            starts = range(0, table.rows, table.piece)
            all_pieces = [table.pieces(variable) for variable in table.variables]
            for start, *pieces in zip(starts, *all_pieces, strict=True):
                ids = np.arange(start, start + len(pieces[0]), dtype=np.int64)
                arrays = [pyarrow.array(ids)]
                arrays += [pyarrow.array(next(labels), pyarrow.string())] if labels else []
                arrays += [
                    pyarrow.FixedSizeListArray.from_arrays(piece.reshape(-1), type=value)
                    for piece in pieces
                ]
                writer.write_batch(pyarrow.record_batch(arrays, schema=schema))


class _Closable(_Sequential):
    """A file as pyarrow asks for one: it is closed by who has opened it."""

    closed = False

    def __init__(self, file: Any):
        super().__init__(file)
        self._position = 0

    def write(self, data: Any) -> int:
        self._position += super().write(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        self.closed = True


_SAFETENSORS = {
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}


def _write_safetensors(folder: str, tables: Sequence[Exported]) -> None:
    """Writes the published format, as the library would hold all tensors in memory.

    Source: https://huggingface.co/docs/safetensors, "Format".
    """
    header: dict[str, Any] = {}
    position = 0
    for table in tables:
        size = table.rows * table.dimension * table.dtype.itemsize
        for variable in table.variables:
            header[variable] = {
                "dtype": _SAFETENSORS[table.dtype.name],
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
            _write_labels(f"{folder}/{table.safe_name}.labels.txt", table, "")


def _write_labels(file: str, table: Exported, missing: str) -> None:
    with tf.io.gfile.GFile(file, "wb") as opened:
        start = 0
        for labels in table.labels():
            lines = (
                missing.format(id) if label is None else label
                for id, label in enumerate(labels, start)
            )
            opened.write("".join(f"{line}\n" for line in lines).encode())
            start += len(labels)


def _write_projector(folder: str, tables: Sequence[Exported]) -> None:
    from google.protobuf import text_format
    from tensorboard.plugins import projector

    config = projector.ProjectorConfig()
    for table in tables:
        described = config.embeddings.add()
        described.tensor_name = table.name
        described.tensor_path = f"{table.safe_name}.tsv"
        described.tensor_shape.extend([table.rows, table.dimension])
        with tf.io.gfile.GFile(f"{folder}/{described.tensor_path}", "wb") as file:
            for piece in table.pieces(table.name):
                # As many digits as give a float32 back.
                np.savetxt(file, piece, fmt="%.9g", delimiter="\t")
        if table.vocabulary:
            described.metadata_path = f"{table.safe_name}.labels.tsv"
            _write_labels(f"{folder}/{described.metadata_path}", table, "({})")
    with tf.io.gfile.GFile(f"{folder}/projector_config.pbtxt", "w") as file:
        file.write(text_format.MessageToString(config))


def _write_saved_model(folder: str, tables: Sequence[Exported]) -> None:
    with tf.init_scope():
        if not tf.executing_eagerly():
            raise ValueError(
                "export: saved-model needs TensorFlow 2's eager execution, which the program has "
                "disabled."
            )
        module = tf.Module()
        module.kept = []  # type: ignore[attr-defined]
        signatures = {}
        values = {}
        for table in tables:
            # TensorFlow saves a model from memory: it saves one row, and `fill` writes the table.
            row = tf.zeros([1, table.dimension], table.dtype)
            shape = [None, table.dimension]
            name = table.safe_name.lstrip("_-") or None  # TensorFlow allows no other beginning.
            weights = tf.Variable(row, trainable=False, name=name, shape=shape)
            place = f"kept/{len(module.kept)}/.ATTRIBUTES/VARIABLE_VALUE"  # type: ignore[arg-type]
            values[place] = large_variables.Rows(
                (table.rows, table.dimension), table.pieces(table.name)
            )
            name = re.sub(r"[^A-Za-z0-9]", "_", table.safe_name)
            module.kept.append(weights)  # type: ignore[attr-defined]
            signatures[name] = _lookup(weights, table.rows)
            if table.vocabulary:
                ids = tf.lookup.StaticHashTable(
                    tf.lookup.TextFileInitializer(
                        table.vocabulary.file,
                        tf.string,
                        tf.lookup.TextFileIndex.WHOLE_LINE,
                        tf.int64,
                        tf.lookup.TextFileIndex.LINE_NUMBER,
                    ),
                    -1,
                )
                module.kept.append(ids)  # type: ignore[attr-defined]
                signatures[f"{name}_labels"] = _lookup_by_label(weights, ids)
        if len(tables) == 1:
            signatures["serving_default"] = next(iter(signatures.values()))
        tf.saved_model.save(module, folder, signatures=signatures)
        large_variables.fill(f"{folder}/variables/variables", values)
        fingerprint = f"{folder}/fingerprint.pb"
        if tf.io.gfile.exists(fingerprint):  # It is of the variables that TensorFlow has saved.
            tf.io.gfile.remove(fingerprint)


def _lookup(weights: tf.Variable, rows: int) -> Any:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "ids")])
    def lookup(ids: tf.Tensor) -> dict[str, tf.Tensor]:
        within = tf.debugging.assert_equal(
            tf.reduce_all((ids >= 0) & (ids < rows)), True, f"ids must be from 0 to {rows - 1}."
        )
        with tf.control_dependencies([within]):
            return {"embeddings": tf.gather(weights, ids)}

    return lookup


def _lookup_by_label(weights: tf.Variable, table: Any) -> Any:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "labels")])
    def lookup_by_label(labels: tf.Tensor) -> dict[str, tf.Tensor]:
        ids = table.lookup(labels)
        known = tf.debugging.assert_equal(
            tf.reduce_all(ids >= 0), True, "A label is not in the vocabulary."
        )
        with tf.control_dependencies([known]):
            return {"embeddings": tf.gather(weights, ids)}

    return lookup_by_label


FORMATS: dict[str, Callable[[str, Sequence[Exported]], None]] = {
    "npz": _write_npz,
    "parquet": _write_parquet,
    "safetensors": _write_safetensors,
    "saved-model": _write_saved_model,
    "projector": _write_projector,
    "tf2": tensorflow2.write_tables,
    "keras": keras_weights.write,
}
