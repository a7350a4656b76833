# SPDX-License-Identifier: Apache-2.0
"""The tables that an export writes, as its formats read them."""

import contextlib
import dataclasses
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.files import values as values_module
from estimator_emb.checkpoints.files.values import Values
from estimator_emb.checkpoints.reading import tables as reading
from estimator_emb.checkpoints.reading.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Exported:
    """A table to export, which is read in pieces.

    Attributes:
      name: name of its variable.
      safe_name: the name as that of a file, without `/` and what else such a name may not have.
      variables: names of its variables, the weights first, then the slots that are exported.
      rows: number of its rows.
      dimension: number of its columns.
      dtype: NumPy's type of its values as they are exported.
      optimizer: as in `SavedVariable`.
      source: the checkpoint that it is in.
      vocabulary: labels of its rows; None without.
      read: function of (variable, first id, end) that returns rows.
      piece: how many rows to read at a time.
      advance: function that is called with the number of bytes that were read.
    """

    name: str
    safe_name: str
    variables: tuple[str, ...]
    rows: int
    dimension: int
    dtype: Any
    optimizer: str | None
    source: Values
    vocabulary: Vocabulary | None
    read: Callable[[str, int, int], np.ndarray]
    piece: int
    advance: Callable[[int], None]

    def array_name(self, variable: str) -> str:
        """Returns the name of one of its variables as that of an array in an archive.

        That is the variable's own, unless an archive could not be unpacked by it.
        """
        parts = self.name.split("/")
        is_safe = (
            self.name.isprintable()
            and not set(self.name) & set("\\:")
            and all(part.strip(". ") for part in parts)
        )
        return variable if is_safe else self.safe_name + variable.removeprefix(self.name)

    def pieces(self, variable: str) -> Iterator[np.ndarray]:
        """Yields the rows of one of its variables, float [rows, dimension], piece by piece."""
        for start in range(0, self.rows, self.piece):
            piece = self.read(variable, start, min(start + self.piece, self.rows))
            self.advance(piece.nbytes)
            yield np.ascontiguousarray(piece)

    def labels(self) -> Iterator[list[str | None]]:
        """Yields the labels of the same pieces; None for a row without."""
        assert self.vocabulary
        return self.vocabulary.pieces(self.rows, self.piece)


@contextlib.contextmanager
def new_folder(destination: str) -> Iterator[str]:
    """Yields a temporary folder, which takes the place of `destination` when all went well.

    Args:
      destination: path of the folder, which must not exist.
    """
    temporary = f"{destination}.{uuid.uuid4().hex}.tmp"
    tf.io.gfile.makedirs(temporary)
    try:
        yield temporary
        tf.io.gfile.rename(temporary, destination)
    finally:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.rmtree(temporary)


def exported(
    values: Values,
    names: Sequence[str],
    slots: bool,
    vocabularies: Mapping[str, str],
    order: str | None,
    progress: Callable[[int, int], Any] | None,
    widen: bool,
    as_files: bool = True,
) -> list[Exported]:
    """Returns the tables of a checkpoint that are asked for.

    Args:
      values: the checkpoint.
      names: names of the tables, as `reading.find` takes them.
      slots: True exports their slots too.
      vocabularies: as that of `export`.
      order: as that of `export`.
      progress: as that of `export`.
      widen: True exports bfloat16 as float32.
      as_files: True, the default, refuses tables whose names would be one as that of a file.

    Raises:
      ValueError: a table or a vocabulary is not there, two tables would share a name, or nothing
        says in which order rows are.
    """
    done = total = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        if progress:
            progress(done, total)

    found: list[Exported] = []
    safe_names: dict[str, str] = {}
    for name in names:
        weights = reading.find(values, name)
        shown = weights.name
        safe = re.sub(r"^[.-]|[^A-Za-z0-9.-]", "_", shown)
        other = safe_names.setdefault(safe.lower() if as_files else shown, shown)
        if any(one.name == shown for one in found) or other != shown:
            raise ValueError(f"export: tables {other!r} and {shown!r} would share a name.")
        rows, dimension = weights.shape
        own = (shown, *weights.slots) if slots else (shown,)
        total += sum(values.size(variable) for variable in own)
        file = vocabularies.get(name)
        read = reading.reader(values, shown, order)
        dtype: Any = np.dtype(weights.dtype.as_numpy_dtype)
        if widen and weights.dtype == tf.bfloat16:
            read, dtype = _widened(read), np.dtype(np.float32)
        found.append(
            Exported(
                shown,
                safe,
                own,
                rows,
                dimension,
                dtype,
                weights.optimizer,
                values,
                Vocabulary(file, shown, rows) if file is not None else None,
                read,
                max(1, values_module.PIECE_BYTES // values.row_bytes(shown)),
                advance,
            )
        )
    return found


def _widened(read: Callable[[str, int, int], np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda *place: read(*place).astype(np.float32)
