"""Implements `checkpoint.statistics`: describes the values of tables in a checkpoint."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from estimator_emb.checkpoints.files.checkpoint_reader import CheckpointReader, counter
from estimator_emb.checkpoints.reading import saved_variables
from estimator_emb.checkpoints.reading.saved_variables import SavedVariable


@dataclasses.dataclass(frozen=True)
class TableStatistics:
    """Statistics of a table's values.

    Attributes:
      name: name of its variable.
      rows: number of its rows.
      dimension: number of values in a row.
      optimizer: as `SavedVariable.optimizer`.
      slots: names of its slots.
      bytes: size of the table and its slots.
      nan: number of NaN in the table and its slots.
      infinite: number of infinite values in the table and its slots.
      mean_norm: mean of the Euclidean norms of the rows without NaN and infinite values. NaN if
        there are no such rows.
      largest_norm: the largest of these norms.
      never_trained: number of rows that no gradient has reached: all of their slots have initial
        values. None if unknown.
      why_unknown: the reason why `never_trained` is unknown, or ''.
    """

    name: str
    rows: int
    dimension: int
    optimizer: str | None
    slots: tuple[str, ...]
    bytes: int
    nan: int
    infinite: int
    mean_norm: float
    largest_norm: float
    never_trained: int | None
    why_unknown: str


def statistics(
    path: str,
    tables: Sequence[str] | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> list[TableStatistics]:
    """Returns statistics of tables: norms, NaN, and rows that were never trained.

    The values are read in pieces, so that memory does not depend on the size of a table.

    A row was never trained if all of its slots have initial values. Most slots begin at 0. The
    accumulators of Adagrad and ProximalAdagrad begin at a number that the program chooses, and then
    grow. The smallest accumulator of the table is taken as that number if it fills a whole row of
    two columns or more. Without slots, as for stochastic gradient descent, the count is unknown.

    Args:
      path: prefix of a checkpoint, or a model directory for its latest checkpoint.
      tables: names of the tables, as in `inspect`. None, the default, means all tables that
        `checkpoint.tables` returns.
      progress: function that is called with the bytes done and the total bytes. None by default.

    Raises:
      ValueError: the checkpoint is missing or damaged, or a table is not in it.
    """
    with CheckpointReader(saved_variables.prefix(path)) as values:
        listed = values.once(saved_variables.listed)
        if tables is None:
            chosen = list(saved_variables.possible_tables(listed).values())
        else:
            chosen = [_named(listed, name, values) for name in tables]
        advance = counter(progress, 2 * sum(variable.bytes for variable in chosen))
        return [_table_statistics(values, variable, advance) for variable in chosen]


def _named(listed: Sequence[SavedVariable], name: str, values: CheckpointReader) -> SavedVariable:
    variable = next((one for one in listed if one.name == name), None)
    if variable is None or len(variable.shape) != 2 or not variable.dtype.is_floating:
        raise ValueError(
            f"statistics: {name!r} is no table of checkpoint {values.path!r}, whose tables are "
            f"{[one.name for one in listed if saved_variables.is_matrix_of_rows(one)]}."
        )
    return variable


def _table_statistics(
    values: CheckpointReader, variable: SavedVariable, advance: Callable[[int], None]
) -> TableStatistics:
    rows, dimension = variable.shape
    nan = infinite = finite_rows = 0
    total = largest = 0.0
    for name in (variable.name, *variable.slots):
        values.check(name, advance)
    for start, end in values.spans(variable.name):
        piece = values.rows(variable.name, start, end)
        piece = piece if piece.dtype.itemsize >= 4 else piece.astype(np.float32)
        nan += int(np.isnan(piece).sum())
        infinite += int(np.isinf(piece).sum())
        norms = np.sqrt(np.einsum("ij,ij->i", piece, piece, dtype=np.float64))
        norms = norms[np.isfinite(piece).all(axis=1)]
        finite_rows += len(norms)
        total += float(norms.sum())
        largest = max(largest, float(norms.max(initial=0.0)))
        advance(len(piece) * values.row_bytes(variable.name))
    trained = _Untrained(variable, values)
    for start, end in values.spans(variable.name, variables=len(variable.slots)):
        pieces = {slot: values.rows(slot, start, end) for slot in trained.read}
        trained.add(pieces)
        for piece in pieces.values():
            nan += int(np.isnan(piece).sum())
            infinite += int(np.isinf(piece).sum())
        advance(sum(pieces[slot].nbytes for slot in variable.slots))
    return TableStatistics(
        variable.name,
        rows,
        dimension,
        variable.optimizer,
        variable.slots,
        variable.bytes,
        nan,
        infinite,
        total / finite_rows if finite_rows else float("nan"),
        largest,
        None if trained.why else trained.count,
        trained.why,
    )


class _Untrained:
    """Counts the rows with all slots at their initial values."""

    def __init__(self, variable: SavedVariable, values: CheckpointReader):
        self.read: tuple[str, ...] = variable.slots
        self._known: dict[str, float] = {}
        self._grows: str | None = None
        self._smallest = np.inf
        self.count = 0
        self.why = ""
        on_cpu = saved_variables.cpu_slots(variable.name, values.shapes)
        if variable.optimizer:
            slots = saved_variables.optimizer_class(variable.optimizer).slots
            for slot in slots:
                if not isinstance(slot.initial, str):
                    self._known[variable.name + slot.suffix] = slot.initial
            if not self._known:
                self._grows = variable.name + slots[0].suffix
        elif on_cpu:
            self.read = on_cpu
            # The first slot of RMSProp begins at 1. All other slots begin at 0.
            zero = on_cpu[1:] if "/RMSProp" in on_cpu[0] else on_cpu
            self._known = dict.fromkeys(zero, 0.0)
        elif variable.slots:
            self.why = "its slots do not tell its optimizer"
        else:
            self.why = "it has no slots"
        if self._grows and variable.shape[1] < 2:
            self.why = "with one column, an accumulator tells nothing"

    def add(self, pieces: dict[str, np.ndarray]) -> None:
        if self.why:
            return
        if self._grows is None:
            same = [(pieces[slot] == initial).all(axis=1) for slot, initial in self._known.items()]
            self.count += int(np.logical_and.reduce(same).sum())
            return
        piece = pieces[self._grows]
        smallest = float(np.nanmin(piece, initial=np.inf))
        if smallest < self._smallest:
            self._smallest, self.count = smallest, 0
        self.count += int((piece == np.float32(self._smallest)).all(axis=1).sum())
