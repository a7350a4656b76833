"""Implements `checkpoint.differences`: compares the variables of two checkpoints."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from estimator_emb.checkpoints.files.checkpoint_reader import CheckpointReader, counter
from estimator_emb.checkpoints.reading import row_order, saved_variables
from estimator_emb.checkpoints.reading.saved_variables import RECORD


@dataclasses.dataclass(frozen=True)
class Difference:
    """How a variable differs between two checkpoints.

    Attributes:
      name: its name.
      what: 'only in the first', 'only in the second', 'shape', 'type' or 'values'.
      first, second: its shapes or types, if these differ.
      rows: number of rows with different values. A scalar counts as a row.
      of_rows: number of its rows.
      largest: the largest absolute difference of two numbers. NaN for strings, and if only one of
        two numbers is NaN.
    """

    name: str
    what: str
    first: Any = None
    second: Any = None
    rows: int = 0
    of_rows: int = 0
    largest: float = 0.0


def differences(
    first: str, second: str, progress: Callable[[int, int], Any] | None = None
) -> list[Difference]:
    """Returns the differences between two checkpoints, by variable.

    Values are compared in pieces, and NaN equals NaN. Rows are compared by id if `convert` would
    know their order. If neither checkpoint tells the order, rows are compared in file order. Legacy
    helper variables and records of conversions are ignored.

    Args:
      first: prefix of a checkpoint, or a model directory for its latest checkpoint.
      second: the same for the other checkpoint.
      progress: function that is called with the bytes done and the total bytes. None by default.

    Raises:
      ValueError: a checkpoint is missing or damaged, or only one of the two tells the order of a
        table's rows.
    """
    paths = saved_variables.prefix(first), saved_variables.prefix(second)
    with CheckpointReader(paths[0]) as here, CheckpointReader(paths[1]) as there:
        names = sorted(
            name
            for name in {*here.shapes, *there.shapes}
            if name != RECORD and not saved_variables.is_helper(name)
        )
        advance = counter(
            progress, 3 * sum(here.size(name) for name in names if name in here.shapes)
        )
        orders = [row_order.known(one) for one in (here, there)]
        found = (
            _difference(here, there, name, _hosts(name, (here, there), orders), advance)
            for name in names
        )
        return [difference for difference in found if difference]


def _hosts(
    name: str, both: tuple[CheckpointReader, CheckpointReader], orders: Sequence[dict[str, int]]
) -> list[int]:
    told = [order.get(name) for order in orders]
    if None in told and told != [None, None]:
        values = both[told.index(None)]
        helped = any(saved_variables.is_helper(other) for other in values.shapes)
        if helped and name in values.shapes and len(values.parts(name) or ()) > 1:
            raise ValueError(
                f"differences: nothing in {values.path!r} says in which order the rows of {name!r} "
                "are: it has no record and no graph (a .meta file). Convert it first "
                "(estimator-emb convert)."
            )
    return [count or 1 for count in told]


def _difference(
    here: CheckpointReader,
    there: CheckpointReader,
    name: str,
    hosts: list[int],
    advance: Callable[[int], None],
) -> Difference | None:
    if name not in there.shapes:
        return Difference(name, "only in the first")
    if name not in here.shapes:
        return Difference(name, "only in the second")
    shape, dtype = here.shapes[name], here.dtypes[name]
    if shape != there.shapes[name]:
        return Difference(name, "shape", shape, there.shapes[name])
    if dtype != there.dtypes[name]:
        return Difference(name, "type", dtype.name, there.dtypes[name].name)
    here.check(name, advance)
    there.check(name, advance)
    is_text = here.is_text(name)
    of_rows = 1 if is_text or not shape else shape[0]
    rows, largest = 0, float("nan") if is_text else 0.0
    for one, other in zip(here.pieces(name, hosts[0]), there.pieces(name, hosts[1]), strict=True):
        rows_here = len(one) if of_rows > 1 else 1
        one, other = one.reshape(rows_here, -1), other.reshape(rows_here, -1)
        differ = (one != other) & ~((one != one) & (other != other))
        rows += int(differ.any(axis=1).sum())
        if differ.any() and not is_text:
            with np.errstate(invalid="ignore", over="ignore"):
                apart = np.abs(one[differ].astype(np.complex128) - other[differ])
            largest = float(np.maximum(largest, apart.max()))
        advance(0 if is_text else one.nbytes)
    if not rows:
        return None
    return Difference(name, "values", rows=rows, of_rows=of_rows, largest=largest)
