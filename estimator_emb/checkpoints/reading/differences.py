"""Finds how the variables of two checkpoints differ: `checkpoint.differences`."""

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
      first, second: its shapes or types, where these differ; else None.
      rows: number of rows that differ, where values do; 1 for a scalar.
      of_rows: number of its rows.
      largest: the largest absolute difference of two numbers; NaN where only one is NaN, and for
        strings.
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
    """Returns the differences between two checkpoints, by variable; [] if there are none.

    Values are compared in pieces; NaN equals NaN. Rows are compared by their ids where `convert`
    would know their order, and in the order of the files where neither checkpoint tells it. Legacy
    helper variables and records of conversions do not count.

    Args:
      first: prefix of a checkpoint, or a model directory, which stands for its latest checkpoint.
      second: the same of the other.
      progress: function of the bytes done and the total bytes; None, the default, for none.

    Raises:
      ValueError: there is no checkpoint, it is damaged, or only one of the two tells in which order
        the rows of a table are.
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
