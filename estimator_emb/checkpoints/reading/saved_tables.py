"""Reads a table of a checkpoint by the table's own name, in id order."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.files.checkpoint_reader import CheckpointReader
from estimator_emb.checkpoints.reading import row_order, saved_variables
from estimator_emb.checkpoints.reading.saved_variables import SavedVariable
from estimator_emb.checkpoints.reading.vocabulary import Vocabulary
from estimator_emb.reporting.suggestions import check_argument


def tables(path: str) -> dict[str, SavedVariable]:
    """Returns name of the variable -> description of the embedding tables of a checkpoint.

    The result has the tables that `convert` knows, and all variables that might be tables: matrices
    of floating-point numbers that are not slots and are not named like dense layers. Values are not
    read.

    Args:
      path: prefix of a checkpoint, or a model directory for its latest checkpoint.

    Raises:
      ValueError: there is no checkpoint.
    """
    return saved_variables.possible_tables(saved_variables.inspect(path))


def table(path: str, name: str, slot: str | None = None, order: str | None = None) -> np.ndarray:
    """Returns a table of a checkpoint, [vocabulary_size, dimension], with row i for id i.

        words = estimator_emb.checkpoint.table(model_dir, "words")

    Args:
      path: prefix of a checkpoint, or a model directory for its latest checkpoint.
      name: name of the variable, or the table's own name: the key of its `TableConfig`, the name of
        its column with or without the ending `_embedding` or `_shared_embedding`, or its name in
        the legacy config and TensorBoard, such as `tbl_words`.
      slot: the suffix of a slot, such as 'Adagrad' or 'Adam/m'. None, the default, means the
        weights.
      order: 'mod' or 'div', the `partition_strategy` of the program that wrote a legacy TPU
        checkpoint, if the checkpoint does not record it. None by default.

    Raises:
      ValueError: the checkpoint is missing or damaged, does not have exactly one such table or
        slot, or does not tell the order of its rows.
    """
    with CheckpointReader(saved_variables.prefix(path)) as values:
        opened = SavedTable(values, name, order)
        return opened.read(opened.variable(slot), 0, opened.rows)


def table_pieces(
    path: str,
    name: str,
    slot: str | None = None,
    order: str | None = None,
    rows: int | None = None,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yields a table in pieces (first id, rows), for tables larger than memory.

    Args:
      path: as in `table`.
      name: as in `table`.
      slot: as in `table`.
      order: as in `table`.
      rows: number of rows to yield at a time. None, the default, means about 32 MB of rows.

    Raises:
      ValueError: as `table`; or `rows` is less than 1.
    """
    check_argument("table_pieces", rows is None or rows >= 1, "rows", "at least 1", rows)
    with CheckpointReader(saved_variables.prefix(path)) as values:
        opened = SavedTable(values, name, order)
        variable = opened.variable(slot)
        for start, end in values.spans(opened.name, rows):
            yield start, opened.read(variable, start, end)


class SavedTable:
    """A table of an open checkpoint, with row i for id i. `variables` has weights, then slots."""

    def __init__(
        self, values: CheckpointReader, name: str, order: str | None = None, widen: bool = False
    ):
        check_argument("table", order in (None, "div", "mod"), "order", "'div' or 'mod'", order)
        found = find(values, name)
        self.values = values
        self.name = found.name
        self.variables = (found.name, *found.slots)
        self.shape = self.rows, self.dimension = found.shape
        self.optimizer = found.optimizer
        self.vocabulary: Vocabulary | None = None
        self.advance: Callable[[int], None] = lambda size: None
        self._hosts = _hosts(values, found.name, order)
        self._widened = widen and found.dtype == tf.bfloat16
        own = np.float32 if self._widened else found.dtype.as_numpy_dtype
        self.dtype: np.dtype[Any] = np.dtype(own)

    @property
    def safe_name(self) -> str:
        return re.sub(r"^[.-]|[^A-Za-z0-9.-]", "_", self.name)

    def variable(self, slot: str | None) -> str:
        """Returns the variable of a slot by its suffix, or of the weights without a suffix."""
        if slot is None:
            return self.name
        name = f"{self.name}/{slot.removeprefix('/')}"
        if self.values.shapes.get(name) != self.shape:
            raise ValueError(
                f"table: {self.name!r} has no slot {slot!r}; it has "
                f"{[one.removeprefix(f'{self.name}/') for one in self.variables[1:]]}."
            )
        return name

    def read(self, variable: str, start: int, end: int) -> np.ndarray:
        rows = self.values.rows_of_ids(variable, start, end, self._hosts)
        return rows.astype(np.float32) if self._widened else rows

    def check(self) -> None:
        """Raises DamagedCheckpoint if a checksum of the table differs."""
        for variable in self.variables:
            self.values.check(variable, self.advance)

    def pieces(self, variable: str) -> Iterator[np.ndarray]:
        for start, end in self.values.spans(self.name):
            piece = self.read(variable, start, end)
            self.advance(piece.nbytes)
            yield np.ascontiguousarray(piece)

    def labels(self) -> Iterator[list[str | None]]:
        """Yields the labels of each piece of rows, with None for a row without a label."""
        labels = iter(self.vocabulary or ())
        for start, end in self.values.spans(self.name):
            yield [next(labels, None) for _ in range(start, end)]


def find(values: CheckpointReader, name: str) -> SavedVariable:
    """Finds a table by its variable, its column or its `own_name`. Raises if it is not unique."""
    matrices = values.once(_matrices)
    if name in matrices:
        return matrices[name]
    possible = values.once(_by_column)
    found = possible.get(name, [])
    if len(found) != 1:
        problem = "no table" if not found else f"more than one table, {found},"
        raise ValueError(
            f"table: there is {problem} called {name!r} in checkpoint {values.path!r}, whose "
            f"matrices are {sorted({one for listed in possible.values() for one in listed})}."
        )
    return matrices[found[0]]


def _matrices(values: CheckpointReader) -> dict[str, SavedVariable]:
    listed = values.once(saved_variables.listed)
    return {one.name: one for one in listed if len(one.shape) == 2 and one.dtype.is_floating}


def _by_column(values: CheckpointReader) -> dict[str, list[str]]:
    """Returns name of a column, or `own_name` -> the tables that it may mean."""
    found: dict[str, list[str]] = {}
    for one, variable in values.once(_matrices).items():
        if saved_variables.is_matrix_of_rows(variable):
            name = one.removesuffix("/embedding_weights").rpartition("/")[2]
            columns = (name.removesuffix(end) for end in ("", "_embedding", "_shared_embedding"))
            for key in {*columns, saved_variables.own_name(one)}:
                found.setdefault(key, []).append(one)
    return found


def _hosts(values: CheckpointReader, name: str, order: str | None) -> int:
    graph = values.once(row_order.graph_of)
    told = values.once(row_order.known).get(name)
    if told is None and not graph.is_other and not row_order.undivided(values, name):
        if order is None:
            raise ValueError(
                f"table: nothing in {values.path!r} says in which order the rows of {name!r} are. "
                "Look up partition_strategy in the program that wrote it, and give order='div' or "
                "order='mod' (--from)."
            )
        if order == "mod":
            listed = values.once(saved_variables.listed)
            slices = row_order.hosts_of_slices(values, [name, *saved_variables.tables(listed)])
            return slices.get(name) or max(slices.values(), default=1)
    if told is None and order == "mod":
        raise ValueError(
            f"table: order is 'mod', and {name!r} is saved in one part in {values.path!r}, as one "
            "host saves it. If another program has joined its parts, use convert first, with hosts "
            "and force=True (estimator-emb convert --hosts --force)."
        )
    wanted = {"div": 1, "mod": told}.get(order or "", told)
    if told is not None and wanted != told or (order == "mod" and told == 1):
        raise ValueError(
            f"table: order is {order!r}, and the rows of {name!r} in {values.path!r} are in "
            f"{row_order.in_words(told)}."
        )
    return told or 1
