"""Implements `checkpoint.export`: writes tables in the formats of other programs."""

import contextlib
import importlib
import io
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.catalog import formats
from estimator_emb.checkpoints.files.checkpoint_reader import CheckpointReader, counter
from estimator_emb.checkpoints.reading import saved_tables, saved_variables
from estimator_emb.checkpoints.reading.saved_tables import SavedTable
from estimator_emb.checkpoints.reading.vocabulary import Vocabulary


class TableFormat:
    """Base class of the formats of `export`.

    If `by_variable`, tables are named by variable. If `looks_labels_up`, labels are looked up.
    """

    looks_labels_up = False
    by_variable = False

    def check_package(self) -> None:
        """Raises a ValueError if a package is missing."""

    def write(self, folder: str, tables: Sequence[SavedTable]) -> None:
        """Writes tables of one checkpoint into an empty folder."""
        raise NotImplementedError

    def names(self, tables: Sequence[SavedTable]) -> dict[str, str]:
        """Returns name of a file, an array or a layer -> the variable that it contains."""
        return {table.safe_name: table.name for table in tables}

    def written(self, folder: str) -> list[str]:
        return sorted(f"{folder}/{name}" for name in tf.io.gfile.listdir(folder))

    def told(self, folder: str, slots: bool) -> str:
        return ""


@contextlib.contextmanager
def new_folder(destination: str) -> Iterator[str]:
    """Yields a temporary folder, and renames it to `destination` if no error is raised."""
    temporary = f"{destination}.{uuid.uuid4().hex}.tmp"
    tf.io.gfile.makedirs(temporary)
    try:
        yield temporary
        tf.io.gfile.rename(temporary, destination)
    finally:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.rmtree(temporary)


def tables_to_write(
    values: CheckpointReader,
    names: Sequence[str],
    format: TableFormat,
    slots: bool,
    vocabularies: Mapping[str, str],
    order: str | None,
    progress: Callable[[int, int], Any] | None,
    allow_unlabelled: bool = False,
) -> list[SavedTable]:
    """Returns the tables to write. Arguments and errors are as in `export`."""
    tables: list[SavedTable] = []
    taken: dict[str, str] = {}
    for name in names:
        table = SavedTable(values, name, order, widen=True)
        own = table.name if format.by_variable else table.safe_name.lower()
        if own in taken:
            raise ValueError(
                f"export: tables {taken[own]!r} and {table.name!r} would share a name."
            )
        taken[own] = table.name
        if not slots:
            table.variables = table.variables[:1]
        if name in vocabularies:
            table.vocabulary = Vocabulary(
                vocabularies[name], table.name, table.rows, allow_unlabelled
            )
            if format.looks_labels_up:
                table.vocabulary.check_distinct()
        tables.append(table)
    advance = counter(
        progress, 2 * sum(values.size(variable) for table in tables for variable in table.variables)
    )
    for table in tables:
        table.advance = advance
    return tables


class Sequential(io.RawIOBase):
    """Wraps a file for a library that writes from beginning to end and then closes its file."""

    def __init__(self, file: Any):
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(bytes(data))
        return len(data)


def export(
    path: str,
    destination: str,
    to: str,
    tables: Sequence[str] | None = None,
    slots: bool = False,
    vocabularies: Mapping[str, str] | None = None,
    order: str | None = None,
    progress: Callable[[int, int], Any] | None = None,
    allow_unlabelled: bool = False,
) -> list[str]:
    """Writes tables of a checkpoint, in id order, into a new folder.

    The folder appears when it is complete. Tables are read and written in pieces of about 32 MB.
    The values are compared with
    their checksums. In a file's name, `_` replaces every character except letters, digits, `-` and
    `.`. In a signature's name, `_` replaces these two as well. If names differ, `names.json` says
    which variable a file, an array or a Keras layer contains. A bfloat16 table is written as
    float32. `docs/api/checkpoint.md` describes each format.

    Args:
      path: prefix of a checkpoint, or a model directory for its latest checkpoint.
      destination: path of the folder, which must not exist.
      to: the format: 'npz', 'parquet', or any other that `estimator-emb export --help` lists.
      tables: names, as in `table`. None, the default, means all tables that `tables` returns.
      slots: True writes slots too. False by default.
      vocabularies: name of a table, as above -> file of its labels, one label per line, in id
        order.
      order: as in `table`.
      progress: function that is called with the bytes done and the total bytes. None by default.
      allow_unlabelled: True accepts a vocabulary with fewer lines than its table has rows. The rows
        beyond the last line get no label, or ''. False, the default, refuses such a vocabulary.

    Returns:
      The sorted paths of the written files, or the folder of a SavedModel.

    Raises:
      ValueError: an argument is not allowed, `destination` exists, a table or a vocabulary is
        missing or does not fit, or the checkpoint is damaged.
    """
    files = vocabularies or {}
    formats.check_arguments(to, tables, slots, files, allow_unlabelled)
    format = format_of(to)
    format.check_package()
    destination = tf.compat.path_to_str(destination).rstrip("/")
    if tf.io.gfile.exists(destination):
        raise ValueError(f"export: {destination!r} exists already.")
    with CheckpointReader(saved_variables.prefix(path)) as values:
        names = list(saved_tables.tables(values.path)) if tables is None else list(tables)
        if not names:
            raise ValueError(f"export: checkpoint {values.path!r} has no table.")
        formats.check_labelled(names, files)
        chosen = tables_to_write(
            values, names, format, slots, files, order, progress, allow_unlabelled
        )
        for table in chosen:
            table.check()
        with new_folder(destination) as temporary:
            format.write(temporary, chosen)
            of_names = format.names(chosen)
            if any(name != variable for name, variable in of_names.items()):
                with tf.io.gfile.GFile(f"{temporary}/names.json", "w") as file:
                    file.write(json.dumps(of_names, indent=1) + "\n")
    return format.written(destination)


def format_of(name: str) -> TableFormat:
    """Returns the format with a name of `formats.EXPORT_FORMATS`."""
    module = f"estimator_emb.checkpoints.formats.{formats.EXPORT_FORMATS[name].module}"
    format: TableFormat = importlib.import_module(module).FORMAT
    return format
