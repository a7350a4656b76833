"""Implements `checkpoint.convert`: writes a checkpoint with table rows in another order."""

import dataclasses
import fnmatch
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.checkpoints.files import writer
from estimator_emb.checkpoints.files.checkpoint_files import DamagedCheckpoint
from estimator_emb.checkpoints.files.checkpoint_reader import CheckpointReader, counter
from estimator_emb.checkpoints.files.writer import Writer
from estimator_emb.checkpoints.reading import row_order, saved_variables
from estimator_emb.checkpoints.reading.saved_variables import RECORD, SavedVariable
from estimator_emb.engine.tables.partition import Partition
from estimator_emb.reporting.suggestions import check_argument
from estimator_emb.reporting.text_columns import escaped

_Hosts = tuple[int, int]
"""Numbers of hosts for the 'mod' order of a variable's rows, before and after the conversion."""


@dataclasses.dataclass(frozen=True)
class Conversion:
    """The result of `convert`.

    Attributes:
      path: prefix of the new checkpoint.
      permuted: names of the tables and slots with reordered rows.
      dropped: names of the helper variables left out.
      hosts: number of hosts of the old 'mod' order, or 1 for id order.
      to_hosts: number of hosts of the new 'mod' order, or 1 for id order.
      left: names of the tables that were not reordered.
    """

    path: str
    permuted: tuple[str, ...]
    dropped: tuple[str, ...]
    hosts: int
    to_hosts: int
    left: tuple[str, ...]


def convert(
    source: str,
    destination: str,
    tables: Iterable[str],
    hosts: int | None = None,
    to: str = "ids",
    progress: Callable[[int, int], Any] | None = None,
    *,
    to_hosts: int | None = None,
    source_order: str | None = None,
    force: bool = False,
) -> Conversion:
    """Copies a checkpoint, with the rows of tables in another order.

    With `partition_strategy='mod'`, the legacy TPUEstimator saved the rows of a table host by host.
    With 'div', and in every checkpoint of this package, the rows are in id order. All variables are
    copied except the legacy helpers, `tpu_embedding_dummy_table_variable_*`. Slots move with their
    tables. The new checkpoint also has the scalar string `estimator_emb/row_order`. It records the
    order of the rows, so that a table is not converted twice. Nothing else reads it.

    The values are compared with their checksums before the conversion, and with the new checkpoint
    afterwards. At most about 256 MB are in memory at a time, except that a float16 variable is
    written as a whole. The new checkpoint appears when it is complete. A missing `checkpoint` file
    is added to its folder, so that the folder serves as a model directory.

    Args:
      source: prefix of a checkpoint, or a model directory for its latest checkpoint.
      destination: a folder, for a checkpoint of the source's name, or the new checkpoint's prefix.
        A path that is not a folder yet is a prefix if it ends in `.ckpt...` or a dash and a number.
      tables: names of the tables, or patterns with * and ?. A pattern finds known tables: matrices
        named by a feature column (`.../embedding_weights`, `..._shared_embedding`), with slots that
        only embedding optimizers have (`/Adam/m`), or named by a legacy helper variable, a record
        or a graph. Name any other table in full, and any slot that `inspect` does not list as such.
      hosts: number of TPU hosts over which the tables were divided. None, the default, takes it
        from the checkpoint: from its record, its graph in the `.meta` file, or the slices in which
        its tables were saved. With `to='mod'` and no `to_hosts`, `hosts` is used as `to_hosts`, and
        the rows must be in id order.
      to: 'ids', the default, for id order, or 'mod' for the legacy 'mod' order.
      progress: function that is called with the bytes done and the total bytes. None by default.
      to_hosts: number of TPU hosts for `to='mod'`.
      source_order: 'mod' or 'div', the program's strategy, if the checkpoint does not record it.
        None by default.
      force: True trusts `hosts` and `source_order` more than slices and names, for a checkpoint
        that another program has rewritten. A record or a graph is always trusted.

    Raises:
      ValueError: the checkpoint is missing or damaged; `destination` exists; a table is not in the
        checkpoint or is not an embedding table; the order of its rows is unknown, is already the
        requested order, or contradicts the arguments; or an argument is not allowed.
    """
    _check_arguments(hosts, to, to_hosts, source_order)
    if to == "mod" and to_hosts is None:
        hosts, to_hosts = None, hosts
    source = saved_variables.prefix(source)
    destination = _new_prefix(source, tf.compat.path_to_str(destination))
    with CheckpointReader(source) as values:
        plan = _Moves(values, list(tables), hosts, source_order, force)
        plan.check_target(to, to_hosts or 1)
        conversion = Conversion(
            destination,
            plan.moved,
            tuple(sorted(name for name in values.shapes if saved_variables.is_helper(name))),
            plan.hosts,
            to_hosts or 1,
            plan.left,
        )
        _write(values, plan, conversion, progress)
    return conversion


def _check_arguments(
    hosts: int | None, to: str, to_hosts: int | None, source_order: str | None
) -> None:
    check = functools.partial(check_argument, "convert")
    check(to in ("ids", "mod"), "to", "'ids' or 'mod'", to)
    check(source_order in (None, "div", "mod"), "source_order", "'div' or 'mod'", source_order)
    check(hosts is None or hosts >= 1, "hosts", "at least 1", hosts)
    check(to_hosts is None or to_hosts >= 1, "to_hosts", "at least 1", to_hosts)
    if to == "ids" and to_hosts is not None:
        raise ValueError("convert: to_hosts needs to='mod'; leave it out for to='ids'.")
    if to == "mod" and hosts is None and to_hosts is None:
        raise ValueError("convert: to='mod' needs to_hosts, the number of TPU hosts.")


def _new_prefix(source: str, destination: str) -> str:
    """Returns the new checkpoint's prefix. Raises ValueError if it exists."""
    files, name = tf.io.gfile, destination.rpartition("/")[2]
    if files.isdir(destination) or not re.search(r"\.ckpt|-\d+$", name):
        destination = f"{destination.rstrip('/')}/{source.rpartition('/')[2]}"
    folder, _, name = destination.rpartition("/")
    folder = folder or ("/" if destination.startswith("/") else ".")
    if files.isdir(folder):
        for other in files.listdir(folder):
            if re.fullmatch(rf"{re.escape(name)}\.(index|data-\d+-of-\d+)", other):
                raise ValueError(f"Checkpoint {destination!r} exists already.")
    above = folder
    while above and not files.isdir(above):
        if files.exists(above):
            raise ValueError(f"{above!r} is a file; it must be a folder for {destination!r}.")
        above = above.rpartition("/")[0]
    return destination


class _Moves:
    """The tables that a conversion moves, and the number of hosts of their current order."""

    def __init__(
        self,
        values: CheckpointReader,
        named: Sequence[str],
        hosts: int | None,
        source_order: str | None,
        force: bool,
    ):
        self._values = values
        self._force = force
        self.record = row_order.record(values)
        self._graph = values.once(row_order.graph_of)
        listed = values.once(saved_variables.listed)
        self._variables = {variable.name: variable for variable in listed}
        self._tables = saved_variables.tables(listed, [*self.record, *self._graph.tables])
        self._named = [table for name in named for table in self._matching(name)]
        if not named:
            raise ValueError("convert: tables must name at least one table (--table).")
        moved = {name for table in self._named for name in (table.name, *table.slots)}
        self.moved = tuple(sorted(moved))
        self.left = tuple(name for name in self._tables if name not in moved)
        self._why = ""
        self.hosts = self._hosts(hosts, source_order)

    def check_target(self, to: str, to_hosts: int) -> None:
        if to == "mod":
            self._check_not_more_than_rows("to_hosts", to_hosts)
        if self.hosts == to_hosts:
            raise ValueError(
                f"convert: there is nothing to convert in {self._values.path!r}: its rows are "
                f"in {row_order.in_words(self.hosts)} already{self._why}."
            )

    def _check_not_more_than_rows(self, argument: str, hosts: int) -> None:
        rows = max(table.shape[0] for table in self._named)
        if hosts > rows:
            raise ValueError(
                f"convert: {argument} must not exceed the rows of the largest table that is named; "
                f"got {hosts}, and that table has {rows} rows."
            )

    def _matching(self, name: str) -> list[SavedVariable]:
        names = [name] if name in self._values.shapes else fnmatch.filter(self._tables, name)
        if not names:
            raise ValueError(
                f"convert: no embedding table matches {name!r}; there are {sorted(self._tables)}."
            )
        return [self._checked(name) for name in names]

    def _checked(self, name: str) -> SavedVariable:
        variable = self._variables.get(name)
        if variable is None:
            owner = next(one.name for one in self._variables.values() if name in one.slots)
            raise ValueError(
                f"convert: {name!r} is a slot, which moves with its table: name the table, "
                f"{owner!r}."
            )
        could_be = len(variable.shape) == 2 and variable.shape[0]
        if not could_be or not (saved_variables.is_matrix_of_rows(variable) or self._force):
            raise ValueError(
                f"convert: {name!r} is no embedding table, by its name, its type or its shape; the "
                f"embedding tables of the checkpoint are {sorted(self._tables)}."
            )
        return variable

    def _hosts(self, hosts: int | None, source_order: str | None) -> int:
        order, known, self._why = self._told()
        wanted = "ids" if source_order == "div" else source_order
        if order is not None and wanted not in (None, order):
            told = row_order.in_words(1 if order == "ids" else known)
            raise ValueError(
                f"convert: source_order is {source_order!r}, and the rows of "
                f"{self._values.path!r} are in {told}{self._why}."
            )
        order = order or wanted or self._undivided()
        if order is None:
            raise ValueError(
                f"convert: nothing in {self._values.path!r} says in which order its rows are: it "
                "has no record of a conversion, and no graph of a TPU program beside it (a .meta "
                "file). Look up partition_strategy in the program that wrote it, and give "
                "source_order='mod' or source_order='div' (--from=mod or --from=div)."
            )
        if order == "ids":
            if hosts not in (None, 1):
                raise ValueError(
                    f"convert: hosts is {hosts}, and the rows of {self._values.path!r} are "
                    f"in {row_order.in_words(1)}{self._why}."
                )
            return 1
        if self.record and known is not None:
            return self._agreeing(hosts, known, self._why)
        slices = self._hosts_of_slices()
        if known is not None:
            hosts = self._agreeing(hosts, known, self._why)
        if slices is not None and not (self._force and hosts):
            return self._agreeing(hosts, *slices)
        if hosts is None:
            raise ValueError(
                "convert: the slices of the tables do not tell over how many hosts they were "
                "divided; give hosts (--hosts)."
            )
        self._check_not_more_than_rows("hosts", hosts)
        return hosts

    def _told(self) -> tuple[str | None, int | None, str]:
        """Returns order, hosts and reason, as far as the record or the graph tells them."""
        if self.record:
            found = {self.record.get(table.name) for table in self._named}
            if len(found) > 1:
                raise ValueError(
                    "convert: the named tables are in different orders, by the record in "
                    f"{self._values.path!r}: {self.record}. Convert those of one order at a time."
                )
            (known,) = found
            if known is None:
                return None, None, ""
            order = "ids" if known == 1 else "mod"
            return order, known, f", by its record, the variable {RECORD}"
        graph = self._graph
        return graph.order, graph.hosts, f": {graph.why}" if graph.why else ""

    def _undivided(self) -> str | None:
        """Returns 'ids' if all tables are undivided and not from a legacy TPU, else None."""
        whole = all(row_order.undivided(self._values, table.name) for table in self._named)
        if not whole or self._force:
            return None
        self._why = ": these tables are not saved in slices, as several TPU hosts save them"
        return "ids"

    def _hosts_of_slices(self) -> tuple[int, str] | None:
        names = {table.name for table in self._named} | set(self._tables)
        told = row_order.hosts_of_slices(self._values, sorted(names))
        own = {table.name: told[table.name] for table in self._named if table.name in told}
        counts = own or told
        if len(set(counts.values())) > 1 and not self._force:
            raise ValueError(
                f"convert: tables of one program are divided over the same hosts, and these are "
                f"saved in different numbers of slices: {counts}. If another program has written "
                "the checkpoint again, give hosts and force=True (--hosts and --force)."
            )
        if not counts:
            return None
        table, count = next(iter(counts.items()))
        slices = "one slice" if count == 1 else f"{count} slices, one for each host"
        return count, f": table {table!r} is saved in {slices}"

    def _agreeing(self, hosts: int | None, told: int, why: str) -> int:
        allowed = f"{told} for {self._values.path!r}{why}"
        check_argument("convert", hosts in (None, told), "hosts", allowed, hosts)
        if told == 1:
            self._why = why
        return told


def _write(
    values: CheckpointReader,
    plan: _Moves,
    conversion: Conversion,
    progress: Callable[[int, int], Any] | None,
) -> None:
    kept = [name for name in sorted(values.shapes) if name not in (*conversion.dropped, RECORD)]
    moves = dict.fromkeys(kept, (1, 1))
    moves |= dict.fromkeys(plan.moved, (conversion.hosts, conversion.to_hosts))
    advance = counter(progress, 3 * sum(values.size(name) for name in kept))
    for name in kept:
        values.check(name, advance)
    # Without a record, all tables of a program have the same strategy.
    before = plan.record or dict.fromkeys(plan.left, plan.hosts)
    orders = {name: before[name] for name in plan.left if name in before}
    orders |= dict.fromkeys(plan.moved, conversion.to_hosts)
    with Writer(conversion.path) as out:
        out.add(RECORD, tf.string, np.array(row_order.contents_of_record(orders), object))
        for name in kept:
            _copy(values, name, moves[name], out, advance)
        merged = out.merge()
        with CheckpointReader(merged) as written:
            for name in kept:
                _compare(values, written, name, moves[name], advance)
        out.finish()


def _copy(
    values: CheckpointReader, name: str, hosts: _Hosts, out: Writer, advance: Callable[[int], Any]
) -> None:
    dtype, shape = values.dtypes[name], values.shapes[name]
    if values.is_text(name) or not shape or not np.prod(shape, dtype=np.int64):
        out.add(name, dtype, values.array(name))  # TensorFlow cannot save slices of strings.
        advance(values.size(name))
        return
    places = Partition(shape[0], hosts[1], "mod").places
    for start, end in values.spans(name, max(1, writer.CHUNK_BYTES // values.row_bytes(name))):
        ids = np.arange(start, end)
        rows = values.rows_of_ids(name, start, end, hosts[0])
        for positions in _slices(values, name, ids, hosts):
            piece = rows if len(positions) == len(rows) else rows[positions]
            first = None if len(piece) == shape[0] else int(places(ids[positions[:1]])[0])
            out.add(name, dtype, piece, shape, first)
        advance(rows.nbytes)


def _slices(
    values: CheckpointReader, name: str, ids: np.ndarray, hosts: _Hosts
) -> list[np.ndarray]:
    """Returns the positions in `ids` of each new slice. A variable that stays keeps its slices."""
    if hosts[1] > 1:
        divided = [np.flatnonzero(ids % hosts[1] == host) for host in range(hosts[1])]
    else:
        kept = (values.parts(name) or []) if hosts == (1, 1) else []
        breaks = np.searchsorted(ids, [part.start for part in kept])
        divided = np.split(np.arange(len(ids)), breaks)
    return [positions for positions in divided if len(positions)]


def _compare(
    values: CheckpointReader,
    written: CheckpointReader,
    name: str,
    hosts: _Hosts,
    advance: Callable[[int], Any],
) -> None:
    is_text = values.is_text(name)
    as_read = (written.shapes.get(name), written.dtypes.get(name))
    right = as_read == (values.shapes[name], values.dtypes[name])
    if right:
        both = values.pieces(name, hosts[0]), written.pieces(name, hosts[1])
        for old, new in zip(*both, strict=True):
            same = old.tolist() == new.tolist() if is_text else old.tobytes() == new.tobytes()
            right = right and same
            advance(0 if is_text else old.nbytes)
    if not right:
        raise DamagedCheckpoint(
            f"convert: {escaped(name)} of the new checkpoint '{written.path}' is not what was "
            "written: the disk may be faulty."
        )
