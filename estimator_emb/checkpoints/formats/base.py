# SPDX-License-Identifier: Apache-2.0
"""What the formats of `export` have in common."""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.files.values import Values, counter
from estimator_emb.checkpoints.reading.saved_tables import SavedTable
from estimator_emb.checkpoints.reading.vocabulary import Vocabulary


class TableFormat:
    """A format of `export`: it may widen bfloat16, and name by variable.

    It may have labels on lines of its files, or look them up.
    """

    lines_of = ""
    looks_labels_up = False
    widens = True
    by_variable = False

    def check_package(self) -> None:
        """Raises a ValueError if a package is missing."""

    def write(self, folder: str, tables: Sequence[SavedTable]) -> None:
        """Writes tables of one checkpoint into an empty folder."""
        raise NotImplementedError

    def names(self, tables: Sequence[SavedTable]) -> dict[str, str]:
        """Returns name of a file, an array or a layer -> variable that it stands for."""
        return {table.safe_name: table.name for table in tables}

    def written(self, folder: str) -> list[str]:
        return sorted(f"{folder}/{name}" for name in tf.io.gfile.listdir(folder))

    def told(self, folder: str, slots: bool) -> str:
        return ""


@contextlib.contextmanager
def new_folder(destination: str) -> Iterator[str]:
    """Yields a temporary folder, which becomes `destination` if no error is raised."""
    temporary = f"{destination}.{uuid.uuid4().hex}.tmp"
    tf.io.gfile.makedirs(temporary)
    try:
        yield temporary
        tf.io.gfile.rename(temporary, destination)
    finally:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.rmtree(temporary)


def tables_to_write(
    values: Values,
    names: Sequence[str],
    format: TableFormat,
    slots: bool,
    vocabularies: Mapping[str, str],
    order: str | None,
    progress: Callable[[int, int], Any] | None,
    allow_unlabelled: bool = False,
) -> list[SavedTable]:
    """Returns the tables to write, with the arguments and the errors of `export`."""
    tables: list[SavedTable] = []
    taken: dict[str, str] = {}
    for name in names:
        table = SavedTable(values, name, order, format.widens)
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
        tables.append(table)
    for table in tables:
        if table.vocabulary and format.lines_of:
            table.vocabulary.check_single_lines(format.lines_of)
        if table.vocabulary and format.looks_labels_up:
            table.vocabulary.check_distinct()
    advance = counter(
        progress, 2 * sum(values.size(variable) for table in tables for variable in table.variables)
    )
    for table in tables:
        table.advance = advance
    return tables


class Sequential:
    """A file that is written from beginning to end, by a library that would close it."""

    closed = False

    def __init__(self, file: Any):
        self._file = file
        self._position = 0

    def write(self, data: Any) -> int:
        self._file.write(bytes(data))
        self._position += len(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        self.closed = True


def write_labels(file: str, table: SavedTable, missing: str) -> None:
    """Writes the labels of a table, one per line; `missing` with the id for rows without one."""
    with tf.io.gfile.GFile(file, "wb") as opened:
        start = 0
        for labels in table.labels():
            lines = (
                missing.format(id) if label is None else label
                for id, label in enumerate(labels, start)
            )
            opened.write("".join(f"{line}\n" for line in lines).encode())
            start += len(labels)
