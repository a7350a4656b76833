"""Finds NaN and infinity in tables, slots, variables and the inputs of a batch."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.engine.tables.storage import StoredTable, saved_name
from estimator_emb.guards.guard import GraphFacts

REMEDY = (
    "Correct the data, or fill in what is missing before the model computes with it: a tf.where "
    "around a result keeps NaN out of the loss, but not out of the gradients."
)

_ROWS_AT_A_TIME = 1 << 14
_SHOWN = 5
_KINDS = {"NaN": np.isnan, "infinity": np.isinf}


def lines_of_weights(
    tables: Iterable[StoredTable],
    variables: Iterable[tf.Variable],
    read: Callable[[tf.Variable], Any],
) -> Iterator[str]:
    """Yields a line for each table, slot or variable that holds NaN or infinity.

    A table or slot is checked if any of its shards is in `variables`. `read` returns its value.
    """
    wanted = {variable.name: variable for variable in variables}
    for table in tables:
        of_shards = [(shard.weights, *shard.slots) for shard in table.variables]
        for shards in zip(*of_shards, strict=True):
            if [shard for shard in shards if wanted.pop(shard.name, None) is not None]:
                part = shards[0]._get_save_slice_info()  # Another host may have the first rows.
                found = _rows_of(map(read, shards), part.var_offset[0] if part else 0)
                if found and shards[0] is of_shards[0][0]:
                    features = ", ".join(repr(feature.key) for feature in table.features)
                    yield f"table {table.name!r} (features {features}): {found}"
                elif found:
                    yield f"slot {saved_name(shards[0])} of table {table.name!r}: {found}"
    for name, variable in wanted.items():
        if variable.dtype.is_floating:
            value = np.asarray(read(variable))
            counts = {kind: (int(holds(value).sum()), "") for kind, holds in _KINDS.items()}
            if found := _listed(counts, f"{value.size:,} numbers"):
                gradient = f" (Gradient for {name} is NaN)" if variable.trainable else ""
                yield f"variable {name}: {found}{gradient}"


def _rows_of(shards: Iterable[np.ndarray], start: int) -> str:
    rows: dict[str, list[int]] = {kind: [] for kind in _KINDS}
    for values in shards:
        for kind, holds in _KINDS.items():
            rows[kind] += [start + row for row in _rows_that_hold(holds, values)]
        start += len(values)
    return _listed({kind: (len(ids), _some(ids)) for kind, ids in rows.items()}, f"{start:,} rows")


def _listed(counts: dict[str, tuple[int, str]], among: str) -> str:
    found = ((kind, *one) for kind, one in counts.items() if one[0])
    return "; ".join(f"{kind} in {count:,} of {among}{where}" for kind, count, where in found)


def _rows_that_hold(holds: Callable[..., Any], values: np.ndarray) -> list[int]:
    return [
        start + int(row)
        for start in range(0, len(values), _ROWS_AT_A_TIME)
        for row in np.flatnonzero(holds(values[start : start + _ROWS_AT_A_TIME]).any(axis=1))
    ]


def _some(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:_SHOWN]))
    return f", ids {shown}, ..." if len(rows) > _SHOWN else f", ids {shown}"


class FloatInputs:
    """The floating-point features and labels of a graph, and where their bad numbers are.

    Attributes:
      names: name of each input. If cores share the batch, each core's input has a name.
      tensors: the tensors of all inputs.
    """

    def __init__(self, graph: GraphFacts):
        self._parts: dict[str, list[tf.Tensor]] = {}
        for name, value in graph.inputs():
            if isinstance(value, tf.SparseTensor):
                parts = [[value.values, value.indices]]
            elif isinstance(value, tf.RaggedTensor):
                parts = [[value.flat_values, *value.nested_row_splits]]
            else:
                of_cores = graph.cores.on_each_core(value) if tf.is_tensor(value) else []
                parts = [[one] for one in of_cores]
            for core, of_core in enumerate(parts, start=graph.cores.own.start):
                if of_core[0].dtype.is_floating:
                    of_name = f"{name} of core {core}" if len(parts) > 1 else name
                    self._parts[of_name] = of_core
        self.names = list(self._parts)
        self.tensors = [part for parts in self._parts.values() for part in parts]

    def lines(self, values: Iterable[Any], bad: Callable[[Any], Any]) -> list[str]:
        """Returns a line per input with bad numbers. `values` are the values of `tensors`."""
        rest = iter(values)
        named = [(name, [next(rest) for _ in parts]) for name, parts in self._parts.items()]
        return [line for name, of_input in named for line in _lines(name, bad, *of_input)]


def not_finite(values: Any) -> Any:
    """Returns True for each number that is NaN or infinite."""
    return ~np.isfinite(values)


def _lines(name: str, bad: Callable[[Any], Any], values: Any, *places: Any) -> list[str]:
    found = np.argwhere(bad(values))
    if not len(found):
        return []
    place = [int(index) for index in found[0]]
    value = values[tuple(place)]
    for of_rows in reversed(places):
        if of_rows.ndim == 2:  # The indices of a SparseTensor.
            place = of_rows[place[0]].tolist()
        else:  # The row splits of a RaggedTensor.
            row = int(np.searchsorted(of_rows, place[0], side="right")) - 1
            place = [row, place[0] - int(of_rows[row]), *place[1:]]
    where = f" in sample {place[0]}, at {place}" if place else ""
    return [f"{name}: {value}{where}, and {len(found)} such of {values.size:,} numbers"]
