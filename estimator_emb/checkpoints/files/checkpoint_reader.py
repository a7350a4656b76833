"""Reads the values of a checkpoint in pieces.

TensorFlow's readers load a whole variable, or a whole saved slice, into memory. This module reads
rows directly from the data files, so a table may be larger than memory.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import google_crc32c
import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.files import bundle_index, checkpoint_files
from estimator_emb.checkpoints.files.bundle_index import FilePart
from estimator_emb.checkpoints.files.checkpoint_files import DamagedCheckpoint, MissingCheckpoint
from estimator_emb.engine.tables.partition import Partition
from estimator_emb.reporting.text_columns import escaped

_Value = TypeVar("_Value")

PIECE_BYTES = 32 << 20


class CheckpointReader:
    """Reads the values of a checkpoint. As a context manager, it closes the files at the end.

    TensorFlow reads strings, variables that are not saved in runs of rows, and unknown index
    formats, each variable as a whole. A missing or damaged file raises the errors of `load`.
    """

    def __init__(self, path: str):
        self.path = path
        self._reader = load(path)
        self.shapes: dict[str, tuple[int, ...]] = {
            name: tuple(shape) for name, shape in self._reader.get_variable_to_shape_map().items()
        }
        self.dtypes: dict[str, tf.DType] = self._reader.get_variable_to_dtype_map()
        self._index: bundle_index.Index | None = None
        with contextlib.suppress(bundle_index.UnknownFormat):
            self._index = bundle_index.Index(path)
        self._files: dict[str, Any] = {}
        self._once: dict[Callable[..., Any], Any] = {}
        self._whole = functools.lru_cache(maxsize=1)(self.array)
        self.parts = functools.cache(self._parts)

    def __enter__(self) -> "CheckpointReader":
        return self

    def __exit__(self, *error: Any) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}
        self._whole.cache_clear()

    def once(self, function: Callable[["CheckpointReader"], _Value]) -> _Value:
        """Returns `function(self)`. The result is cached, so that all tables share it."""
        if function not in self._once:
            self._once[function] = function(self)
        value: _Value = self._once[function]
        return value

    def is_text(self, name: str) -> bool:
        return bool(self.dtypes[name] == tf.string)

    def row_bytes(self, name: str) -> int:
        """Returns the size of a variable's row in bytes, at least 1. A string counts as 8."""
        row = int(np.prod(self.shapes[name][1:], dtype=np.int64))
        return max(1, row * self.dtypes[name].size)

    def size(self, name: str) -> int:
        """Returns the size of a variable in bytes, or 0 for strings."""
        size = 0 if self.is_text(name) else self.dtypes[name].size
        return int(np.prod(self.shapes[name], dtype=np.int64)) * size

    def spans(
        self, name: str, rows: int | None = None, variables: int = 1
    ) -> Iterator[tuple[int, int]]:
        """Yields (first row, end row) of each piece of a variable. A piece has up to `rows` rows.

        By default, the pieces of `variables` such variables together take up to `PIECE_BYTES`.
        """
        rows = rows or max(1, PIECE_BYTES // (self.row_bytes(name) * max(1, variables)))
        for start in range(0, self.shapes[name][0], rows):
            yield start, min(start + rows, self.shapes[name][0])

    def rows(self, name: str, start: int, end: int) -> np.ndarray:
        parts = self.parts(name)
        if parts is None:
            return self._whole(name)[start:end]
        dtype = self.dtypes[name].as_numpy_dtype
        values = np.empty((end - start, *self.shapes[name][1:]), dtype)
        size = self.row_bytes(name)
        for part in parts:
            both = range(max(start, part.start), min(end, part.start + part.rows))
            if both:
                data = self._read(part, (both.start - part.start) * size, len(both) * size)
                piece = np.frombuffer(data, dtype).reshape(len(both), *values.shape[1:])
                values[both.start - start : both.stop - start] = piece
        return values

    def rows_of_ids(self, name: str, start: int, end: int, hosts: int) -> np.ndarray:
        """Returns the rows of ids [start, end) of a variable in 'mod' order over `hosts` hosts."""
        if hosts == 1:
            return self.rows(name, start, end)
        places = Partition(self.shapes[name][0], hosts, "mod").places(np.arange(start, end))
        order = np.argsort(places, kind="stable")
        breaks = np.flatnonzero(np.diff(places[order]) != 1) + 1
        values = np.empty((len(places), *self.shapes[name][1:]), self.dtypes[name].as_numpy_dtype)
        for positions in np.split(order, breaks):
            first = int(places[positions[0]])
            values[positions] = self.rows(name, first, first + len(positions))
        return values

    def pieces(self, name: str, hosts: int = 1) -> Iterator[np.ndarray]:
        """Yields a variable in pieces, in id order. Strings and scalars are a single piece.

        TensorFlow reads and checks a variable that is a single piece, so it needs no `check`.
        """
        spans = [] if self.is_text(name) or not self.shapes[name] else [*self.spans(name)]
        if len(spans) <= 1 and hosts == 1:
            yield self.array(name)
            return
        for start, end in spans:
            yield self.rows_of_ids(name, start, end, hosts)

    def _parts(self, name: str) -> list[FilePart] | None:
        """Returns the parts of a variable in row order, or None if TensorFlow must read it."""
        if self._index is None or self.is_text(name) or not self.shapes[name]:
            return None
        try:
            parts = self._index.parts(name)
            size = np.dtype(self.dtypes[name].as_numpy_dtype).itemsize
        except (bundle_index.UnknownFormat, TypeError):
            return None
        row = self.row_bytes(name)
        fits = all(part.size == part.rows * row for part in parts)
        return parts if fits and size == self.dtypes[name].size else None

    def check(self, name: str, progress: Callable[[int], Any] = lambda size: None) -> None:
        """Raises DamagedCheckpoint, naming the data file, if a variable's checksum differs."""
        parts = self.parts(name)
        if parts is None:
            self._whole(name)
            progress(self.size(name))
            return
        for part in parts:
            checksum = 0
            for offset in range(0, part.size, PIECE_BYTES):
                data = self._read(part, offset, min(PIECE_BYTES, part.size - offset))
                checksum = google_crc32c.extend(checksum, data)
                progress(len(data))
            # Masked like `Mask` of tensorflow/core/lib/hash/crc32c.h.
            turned = checksum >> 15 | checksum << 17
            if (turned + 0xA282EAD8) & 0xFFFFFFFF != part.crc32c:
                raise DamagedCheckpoint(
                    f"Checkpoint '{self.path}' is damaged: '{part.file}' does not hold what was "
                    f"saved of {escaped(name)}: its checksum is another one."
                )

    def _read(self, part: FilePart, offset: int, size: int) -> bytes:
        file = self._files.get(part.file)
        if file is None:
            file = self._files[part.file] = tf.io.gfile.GFile(part.file, "rb")
        file.seek(part.offset + offset)
        data: bytes = file.read(size)
        if len(data) != size:
            raise DamagedCheckpoint(
                f"Checkpoint '{self.path}' is damaged: '{part.file}' ends before byte "
                f"{part.offset + offset + size:,}."
            )
        return data

    def array(self, name: str) -> np.ndarray:
        """Returns a whole variable as an array.

        An array of strings has dtype object, because NumPy strings lose trailing zero bytes.
        """
        return np.asarray(self.whole(name), object if self.is_text(name) else None)

    def whole(self, name: str) -> Any:
        try:
            return self._reader.get_tensor(name)
        except (tf.errors.OpError, IndexError) as error:
            why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            raise DamagedCheckpoint(
                f"Checkpoint '{self.path}' is damaged: variable {escaped(name)} cannot be read "
                f"from '{checkpoint_files.file_of(self.path, name)}' ({why})."
            ) from None


def counter(progress: Callable[[int, int], Any] | None, total: int) -> Callable[[int], None]:
    """Returns a function that adds up finished bytes and reports them to `progress`, if given."""
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        if progress:
            progress(done, total)

    return advance


def load(path: str) -> Any:
    """Checks that a checkpoint is whole, and returns TensorFlow's reader of it.

    A single-line error names a missing or damaged file.
    """
    if tf.io.gfile.exists(f"{path}.index") and not tf.io.gfile.glob(f"{path}.index"):
        raise MissingCheckpoint(
            f"Checkpoint '{path}' is there, but TensorFlow does not find it: it reads [...] and \\ "
            "in a path as a pattern. Rename the folder so that its path has no [ and no \\."
        )
    found = checkpoint_files.find_problem(path)
    if found:
        text, missing = found
        text = f"Checkpoint '{path}' is damaged: {' '.join(text.split())}."
        raise MissingCheckpoint(text) if missing else DamagedCheckpoint(text)
    return tf.train.load_checkpoint(path)
