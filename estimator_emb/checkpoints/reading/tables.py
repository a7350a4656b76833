# SPDX-License-Identifier: Apache-2.0
"""Reads a table of a checkpoint by its own name, in the order of its ids."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from estimator_emb.checkpoints.files import values as values_module
from estimator_emb.checkpoints.files.values import Values
from estimator_emb.checkpoints.reading import row_order, saved_variables
from estimator_emb.checkpoints.reading.saved_variables import SavedVariable
from estimator_emb.tables.partition import Partition


def tables(path: str) -> dict[str, SavedVariable]:
    """Returns the embedding tables of a checkpoint, name of the variable -> its description.

    They are the matrices which the checkpoint says to be tables, as `convert` knows them, and
    besides those that might be: of floating-point numbers, no slots, and not called as a dense
    layer calls its own. No values are read.

    Args:
      path: prefix of a checkpoint, or a model directory, which stands for its latest checkpoint.

    Raises:
      ValueError: there is no checkpoint.
    """
    listed = saved_variables.inspect(path)
    shapes = {variable.name: variable.shape for variable in listed}
    of_cpu = {slot for name in shapes for slot in saved_variables.cpu_slots(name, shapes)}
    return {
        variable.name: variable
        for variable in listed
        if saved_variables.is_matrix_of_rows(variable) and variable.name not in of_cpu
    }


def table(path: str, name: str, slot: str | None = None, order: str | None = None) -> np.ndarray:
    """Returns a table of a checkpoint, [vocabulary_size, dimension], with row i for id i.

        words = estimator_emb.checkpoint.table(model_dir, "words")

    Args:
      path: prefix of a checkpoint, or a model directory, which stands for its latest checkpoint.
      name: name of the variable, or the table's own name: the key of its `TableConfig`, or the name
        of its column, with or without `_embedding` or `_shared_embedding` at its end, or what the
        legacy config and TensorBoard call it, such as `tbl_words`.
      slot: None, the default, for the weights; or the suffix of a slot, such as 'Adagrad' or
        'Adam/m'.
      order: 'mod' or 'div', the `partition_strategy` of the program that wrote a legacy TPU
        checkpoint which does not say it. None, the default, for one that does.

    Raises:
      ValueError: there is no checkpoint, it is damaged, it has no such table or slot or several, or
        nothing says in which order its rows are.
    """
    with _Table(path, name, slot, order) as opened:
        return opened.rows(0, opened.shape[0])


def table_pieces(
    path: str,
    name: str,
    slot: str | None = None,
    order: str | None = None,
    rows: int | None = None,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (first id, rows) of consecutive rows of a table, for one larger than the memory.

    Args:
      path: as of `table`.
      name: as of `table`.
      slot: as of `table`.
      order: as of `table`.
      rows: how many to yield at a time; None, the default, for about 32 MB of them.

    Raises:
      ValueError: as `table`; or `rows` is less than 1.
    """
    if rows is not None and rows < 1:
        raise ValueError(f"table_pieces: rows must be at least 1; got {rows}.")
    with _Table(path, name, slot, order) as opened:
        size = rows or max(1, values_module.PIECE_BYTES // opened.row_bytes)
        for start in range(0, opened.shape[0], size):
            yield start, opened.rows(start, min(start + size, opened.shape[0]))


class _Table:
    """An opened table or slot, whose rows are read by their ids."""

    def __init__(self, path: str, name: str, slot: str | None, order: str | None):
        values = Values(saved_variables.prefix(path))
        with values:  # It opens files again when it reads.
            weights = find(values, name)
            self._read = reader(values, weights.name, order)
        self.name = weights.name if slot is None else _slot(values, weights, slot)
        self.shape = weights.shape
        self.row_bytes = values.row_bytes(weights.name)
        self._values = values

    def __enter__(self) -> "_Table":
        return self

    def __exit__(self, *error: object) -> None:
        self._values.__exit__(*error)

    def rows(self, start: int, end: int) -> np.ndarray:
        """Returns the rows of the ids from `start` to before `end`."""
        return self._read(self.name, start, end)


def reader(values: Values, name: str, order: str | None) -> Callable[[str, int, int], np.ndarray]:
    """Returns a function of (variable, first id, end), which reads rows of a table or its slot.

    Args:
      values: the checkpoint.
      name: name of the table's variable.
      order: as that of `table`.
    """
    _check_order(order)
    hosts = _hosts(values, name, order)
    places = Partition(max(1, values.shapes[name][0]), hosts, "mod").places
    return lambda variable, start, end: values.gather(variable, places(np.arange(start, end)))


def _check_order(order: str | None) -> None:
    if order not in (None, "div", "mod"):
        raise ValueError(f"table: order must be 'div' or 'mod'; got {order!r}.")


def find(values: Values, name: str) -> SavedVariable:
    """Returns the table that a name means: its variable's, its column's, or `own_name`.

    Raises:
      ValueError: there is none, or there are several.
    """
    listed = saved_variables.of_shapes(values.shapes, values.dtypes)
    matrices = {one.name: one for one in listed if len(one.shape) == 2 and one.dtype.is_floating}
    if name in matrices:
        return matrices[name]
    possible: Mapping[str, SavedVariable] = {
        one: variable
        for one, variable in matrices.items()
        if saved_variables.is_matrix_of_rows(variable)
    }
    of_column = {name + end for end in ("", "_embedding", "_shared_embedding")}
    found = [
        one
        for one in possible
        if one.removesuffix("/embedding_weights").rpartition("/")[2] in of_column
        or saved_variables.own_name(one) == name
    ]
    if len(found) != 1:
        problem = "no table" if not found else f"more than one table, {found},"
        raise ValueError(
            f"table: there is {problem} called {name!r} in checkpoint {values.path!r}, whose "
            f"matrices are {sorted(possible)}."
        )
    return matrices[found[0]]


def _slot(values: Values, weights: SavedVariable, slot: str) -> str:
    name = f"{weights.name}/{slot.removeprefix('/')}"
    if values.shapes.get(name) != weights.shape:
        raise ValueError(
            f"table: {weights.name!r} has no slot {slot!r}; it has "
            f"{[one.removeprefix(f'{weights.name}/') for one in weights.slots]}."
        )
    return name


def _hosts(values: Values, name: str, order: str | None) -> int:
    """Returns the number of hosts in whose order the rows of a table are."""
    graph = row_order.saved_graph(values.path)
    told = row_order.known(values, graph).get(name)
    if told is None and graph.program != "other" and not row_order.undivided(values, name):
        if order is None:
            raise ValueError(
                f"table: nothing in {values.path!r} says in which order the rows of {name!r} are. "
                "Look up partition_strategy in the program that wrote it, and give order='div' or "
                "order='mod' (--from)."
            )
        if order == "mod":
            listed = saved_variables.of_shapes(values.shapes, values.dtypes)
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
        rows = "the ids" if told == 1 else f"'mod' over {told} hosts"
        raise ValueError(
            f"table: order is {order!r}, and the rows of {name!r} in {values.path!r} are in the "
            f"order of {rows}."
        )
    return told or 1
