# SPDX-License-Identifier: Apache-2.0
"""Writes tables of a checkpoint in the formats of other programs: `checkpoint.export`."""

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.files.values import Values
from estimator_emb.checkpoints.formats.base import TableFormat, new_folder, tables_to_write
from estimator_emb.checkpoints.reading import saved_tables, saved_variables
from estimator_emb.names import formats


def export(
    path: str,
    destination: str,
    to: str,
    tables: Sequence[str] | None = None,
    slots: bool = False,
    vocabularies: Mapping[str, str] | None = None,
    order: str | None = None,
    progress: Callable[[int, int], Any] | None = None,
    precision: str = "float32",
    allow_unlabelled: bool = False,
) -> list[str]:
    """Writes tables of a checkpoint, in the order of their ids, into a new folder.

    The folder appears when it is complete. Tables are read and written in pieces of about 32 MB,
    those of float16 in a SavedModel as a whole.
    The values are compared with their checksums. The name of a file has `_` for every character but
    letters, digits, `-` and `.`; the name of a signature has it for those two as well. `names.json`
    says which variable a file, an array or a Keras layer stands for, where their names differ. A
    table of bfloat16 is written as float32, except as safetensors. `docs/api/checkpoint.md` says
    what each format holds.

    Args:
      path: prefix of a checkpoint, or a model directory, which stands for its latest checkpoint.
      destination: path of the folder, which must not exist.
      to: the format: 'npz', 'parquet', or another one that `estimator-emb export --help` lists.
      tables: names, as `table` takes them. None, the default, stands for all that `tables` returns.
      slots: True writes slots too. False by default.
      vocabularies: table, by the same name -> file of its labels, one on a line, in the order of
        the ids.
      order: as in `table`.
      progress: function of the bytes done and the total bytes; None, the default, for none.
      precision: 'float16' rounds the tables of a 'saved-model' to that type, whose embeddings stay
        float32. 'float32', the default, rounds nothing.
      allow_unlabelled: True gives rows beyond the last line of their vocabulary no label, or ''.
        False, the default, refuses a vocabulary with fewer lines than its table has rows.

    Returns:
      The paths of the written files, sorted; of a SavedModel, its folder.

    Raises:
      ValueError: an argument is not allowed, `destination` exists, a table or a vocabulary is
        missing or does not fit, or the checkpoint is damaged; or float16 cannot hold a number.
    """
    files = vocabularies or {}
    formats.check_arguments(to, tables, slots, files, precision, allow_unlabelled)
    format = format_of(to)
    format.check_package()
    destination = tf.compat.path_to_str(destination).rstrip("/")
    if tf.io.gfile.exists(destination):
        raise ValueError(f"export: {destination!r} exists already.")
    with Values(saved_variables.prefix(path)) as values:
        names = list(saved_tables.tables(values.path)) if tables is None else list(tables)
        if not names:
            raise ValueError(f"export: checkpoint {values.path!r} has no table.")
        formats.check_labelled(names, files)
        chosen = tables_to_write(
            values, names, format, slots, files, order, progress, allow_unlabelled
        )
        for table in chosen:
            if precision == "float16":
                table.rounded_for = "export: precision='float16'"
            table.check()
        with new_folder(destination) as temporary:
            format.write(temporary, chosen)
            of_names = format.names(chosen)
            if any(name != variable for name, variable in of_names.items()):
                with tf.io.gfile.GFile(f"{temporary}/names.json", "w") as file:
                    file.write(json.dumps(of_names, indent=1) + "\n")
    return format.written(destination)


def format_of(name: str) -> TableFormat:
    """Returns the format of a name in `formats.EXPORT_FORMATS`."""
    module = f"estimator_emb.checkpoints.formats.{formats.EXPORT_FORMATS[name].module}"
    format: TableFormat = importlib.import_module(module).FORMAT
    return format
