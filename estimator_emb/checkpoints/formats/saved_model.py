"""Writes tables as a SavedModel that looks them up."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.files.checkpoint_reader import CheckpointReader
from estimator_emb.checkpoints.files.writer import Writer
from estimator_emb.checkpoints.formats.exporting import TableFormat
from estimator_emb.checkpoints.reading.saved_tables import SavedTable


class _SavedModel(TableFormat):
    """Writes signatures that look up rows of each table by id and by label."""

    looks_labels_up = True

    def names(self, tables: Sequence[SavedTable]) -> dict[str, str]:
        return {}

    def written(self, folder: str) -> list[str]:
        return [folder]

    def write(self, folder: str, tables: Sequence[SavedTable]) -> None:
        with tf.init_scope():
            if not tf.executing_eagerly():
                raise ValueError(
                    "export: saved-model needs TensorFlow 2's eager execution, which the program "
                    "has disabled."
                )
            module = tf.Module()
            module.kept = []  # type: ignore[attr-defined]
            signatures = {}
            values: dict[str, SavedTable] = {}
            for table in tables:
                # TensorFlow saves a model from memory. It saves a row, and `_fill` adds the table.
                row = tf.zeros([1, table.dimension], table.dtype)
                shape = [None, table.dimension]
                name = table.safe_name.lstrip("_-") or None  # TensorFlow refuses these at a start.
                weights = tf.Variable(row, trainable=False, name=name, shape=shape)
                place = f"kept/{len(module.kept)}/.ATTRIBUTES/VARIABLE_VALUE"  # type: ignore[arg-type]
                values[place] = table
                name = re.sub(r"[^A-Za-z0-9]", "_", table.safe_name)
                module.kept.append(weights)  # type: ignore[attr-defined]
                signatures[name] = _lookup(weights, table)
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
                    signatures[f"{name}_labels"] = _lookup(weights, table, ids)
            if len(tables) == 1:
                signatures["serving_default"] = next(iter(signatures.values()))
            tf.saved_model.save(module, folder, signatures=signatures)
            _fill(f"{folder}/variables/variables", values)
            fingerprint = f"{folder}/fingerprint.pb"
            if tf.io.gfile.exists(fingerprint):  # It belongs to the variables before `_fill`.
                tf.io.gfile.remove(fingerprint)


def _lookup(weights: tf.Variable, table: SavedTable, labels: Any = None) -> Any:
    rows = table.rows
    given = tf.TensorSpec([None], tf.int64, "ids")
    unknown = f"ids must be from 0 to {rows - 1}."
    if labels is not None:
        given = tf.TensorSpec([None], tf.string, "labels")
        unknown = "A label is not in the vocabulary."

    @tf.function(input_signature=[given])
    def lookup(given: tf.Tensor) -> dict[str, tf.Tensor]:
        ids = given if labels is None else labels.lookup(given)
        all_known = tf.reduce_all((ids >= 0) & (ids < rows))
        with tf.control_dependencies([tf.debugging.assert_equal(all_known, True, unknown)]):
            return {"embeddings": tf.gather(weights, ids)}

    return lookup


def _fill(path: str, tables: Mapping[str, SavedTable]) -> None:
    """Replaces single-row variables of the checkpoint at `path` with tables of any size."""
    with Writer(path) as out:
        with CheckpointReader(path) as small:
            for name, dtype in small.dtypes.items():
                if name not in tables:
                    out.add(name, dtype, small.array(name))
            for name, table in tables.items():
                out.add_rows(name, small.dtypes[name], table.shape, table.pieces(table.name))
        merged = out.merge()
        for old in tf.io.gfile.glob(f"{path}.data-*"):
            tf.io.gfile.remove(old)
        for new in tf.io.gfile.glob(f"{merged}.*"):
            tf.io.gfile.rename(new, path + new.removeprefix(merged), overwrite=True)


FORMAT = _SavedModel()
