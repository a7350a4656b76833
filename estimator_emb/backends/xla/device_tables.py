"""Looks up and trains tables in the memory of PJRT devices, inside a single jax program.

`look_up` and `update` run in a shard_map over the axis `core` of N devices. Tables with the same
dimension and rule form a `Stack`: an array of weights and an array per slot. A step sorts, gathers
and scatters once per stack. Id i of table number t in a stack is on device (i + t) % N. Its local
row is i // N, counted from the table's first row there. The shift by t keeps the frequent first ids
of all tables from meeting on the same device.

Every device receives the ids of all cores. It sorts the ids that it owns, and processes them in
chunks. A device with more ids takes more turns, and no turn waits for another device. An activation
is the sum of all devices' parts.

On a TPU several narrow rows share a row of 128 lanes. XLA would pad or transpose them otherwise.
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

AXIS = "core"
LANES = 128
"""The number of floats (lanes) in a row of a TPU's memory."""
_NONE = np.int32(2**31 - 1)
"""Stands for the local row of an id that another device owns, or of a padding id."""
_SLACK = 1.25
"""Ratio of a chunk's size to the number of ids per device if all devices own equally many."""

_BLOCK = 4096
"""Number of packed rows that a turn updates if a step updates every row."""
ROWS = 2**31 - 2**24
"""Exclusive upper limit of a stack's rows on a device."""


@dataclasses.dataclass(frozen=True)
class DeviceTable:
    """A table of a program.

    Attributes:
      step: (rate, gradients, weights, slots) -> (weights, *slots), for any number of rows.
      rule: identifies `step`. Tables with equal rules have the same `step`.
      initial: the initial value of each slot.
      all_rows: whether a step changes rows that no id looks up.
      accumulates: whether a row gets a single step for the summed gradients of all cores.
    """

    name: str
    rows: int
    dimension: int
    step: Callable[..., Sequence[Any]]
    rule: Any
    initial: tuple[float, ...]
    all_rows: bool = False
    accumulates: bool = True


@dataclasses.dataclass(frozen=True)
class DeviceFeature:
    """A feature that looks up a table, with `segments` activations per sample."""

    key: str
    table: str
    segments: int = 1


class Stack:
    """Tables that share arrays [packed, lanes] on each of `cores` devices."""

    def __init__(self, tables: Sequence[DeviceTable], cores: int, packs: bool):
        first = tables[0]
        self.tables, self.cores, self.dimension = list(tables), cores, first.dimension
        self.step, self.all_rows, self.accumulates = first.step, first.all_rows, first.accumulates
        self.fills = (0.0, *first.initial)
        """Values of unused rows, for the weights and then each slot."""
        self.pack, self.width = 1, first.dimension
        if packs and first.dimension <= LANES:
            self.width = 1 << (first.dimension - 1).bit_length()
            self.pack = LANES // self.width
        elif packs:
            self.width = -(-first.dimension // LANES) * LANES
        self.lanes = self.width * self.pack
        self.base: dict[str, int] = {}
        self.turn: dict[str, int] = {}
        rows = 0
        for number, table in enumerate(tables):
            self.turn[table.name], self.base[table.name] = number % cores, rows
            own = -(-table.rows // cores)
            rows += -(-own // self.pack) * self.pack  # No two tables share a packed row.
        self.rows = rows
        if rows >= ROWS:
            raise ValueError(
                f"TPUConfig: tables='device' holds fewer than {ROWS:,} rows of one dimension and "
                f"optimizer on a device; tables {', '.join(self.base)} have {rows:,} on each of "
                f"{cores}. Take more devices, or choose tables='host'."
            )
        self.packed = rows // self.pack
        self.first_packed = np.array([self.base[one.name] for one in tables], np.int32) // self.pack

    @property
    def bytes(self) -> int:
        """The bytes of the arrays on each device."""
        return 4 * self.packed * self.lanes * len(self.fills)

    def shard(self, device: int, values: Mapping[str, np.ndarray], fill: float) -> np.ndarray:
        """Returns a device's part of the array, from whole tables [rows, dimension] in id order."""
        own = {one.name: values[one.name][self._ids(device, one)] for one in self.tables}
        return self.filled(own, fill)

    def unshard(self, device: int, part: Any, into: Mapping[str, np.ndarray]) -> None:
        """Writes a device's part of the array into whole tables in id order."""
        for table in self.tables:
            into[table.name][self._ids(device, table)] = self.rows_of(device, part, table)

    def filled(self, own: Mapping[str, np.ndarray], fill: float) -> np.ndarray:
        """Returns a device's part of the array, from the device's rows of each table."""
        part = np.full([self.rows, self.width], fill, np.float32)
        for name, rows in own.items():
            part[self.base[name] : self.base[name] + len(rows), : self.dimension] = rows
        return part.reshape(self.packed, self.lanes)

    def rows_of(self, device: int, part: Any, table: DeviceTable) -> np.ndarray:
        """Returns a table's rows from a device's part of the array."""
        count = len(range(table.rows)[self._ids(device, table)])
        base = self.base[table.name]
        rows = np.asarray(part).reshape(self.rows, self.width)
        return rows[base : base + count, : self.dimension]

    def _ids(self, device: int, table: DeviceTable) -> slice:
        return slice((device - self.turn[table.name]) % self.cores, None, self.cores)


def stacks_of(tables: Sequence[DeviceTable], cores: int, packs: bool) -> list[Stack]:
    """Groups tables into stacks, in the order of each stack's first table."""
    groups: dict[Any, list[DeviceTable]] = {}
    for table in tables:
        groups.setdefault((table.dimension, table.rule), []).append(table)
    return [Stack(group, cores, packs) for group in groups.values()]


@dataclasses.dataclass(frozen=True)
class StackIds:
    """The concatenated ids of all cores that look up a stack. Arrays are [n].

    Attributes:
      rows: int32, the local row of each id, or `_NONE`.
      segments: int32, the segment of each id, numbered sample by sample.
      gains: float32, or None if each gain is 1.
      owners: int32, id % cores, for rows of this device. This core's gradient is applied first.
      cores: int32, the core whose sample has the id.
      total: number of segments of all samples and features.
      one_each: True if each feature has an id per segment, in the order of the segments.
      sorted: see `DeviceTables._sorted`.
    """

    rows: Any
    segments: Any
    gains: Any
    owners: Any
    cores: Any
    total: int
    one_each: bool
    sorted: "_Sorted"


_Sorted = collections.namedtuple("_Sorted", "rows places")
"""Rows in ascending order, and the place of each among all ids.

`_NONE` pads the rows to whole chunks. The last chunk ends with a `_NONE`.
"""


class DeviceTables:
    """Tables on the devices of a mesh. A step has `batch` samples on all cores together."""

    def __init__(
        self,
        tables: Sequence[DeviceTable],
        features: Sequence[DeviceFeature],
        batch: int,
        cores: int,
        packs: bool = False,
    ):
        self.batch, self.cores, self.count = batch, cores, len(tables)
        self.stacks = stacks_of(tables, cores, packs)
        self._numbers = {table.name: number for number, table in enumerate(tables)}
        self._features = [
            [one for one in features if one.table in stack.base] for stack in self.stacks
        ]

    def look_up(self, arrays: Any, ids: Any) -> tuple[dict[str, Any], list[StackIds]]:
        """Returns this core's activations by feature, and the ids that `update` needs.

        Args:
          arrays: for each stack the weights and slots on this device, float32 [packed, lanes].
          ids: for each feature this device's arrays: `ids`, int32 [m], with -1 as padding, and the
            optional `segments`, int32 [m], and `gains`, float32 [m]. By default each segment has a
            single id, and each gain is 1.
        """
        everyone = self._gathered(ids)
        flat, kept = [], []
        for stack, features, (weights, *_) in zip(self.stacks, self._features, arrays, strict=True):
            of_stack = self._occurrences(stack, features, everyone)
            kept.append(of_stack)
            flat.append(self._sums(stack, weights, of_stack))
        together = jnp.concatenate(flat, 1)
        if self.cores > 1:
            together = lax.psum_scatter(together, AXIS, scatter_dimension=0, tiled=True)
        activations, start = {}, 0
        for stack, features in zip(self.stacks, self._features, strict=True):
            for feature in features:
                size = feature.segments * stack.dimension
                activations[feature.key] = together[:, start : start + size]
                start += size
        return activations, kept

    def update(
        self, arrays: Any, kept: list[StackIds], gradients: Mapping[str, Any], rates: Any
    ) -> list[Any]:
        """Returns the arrays after a step of the optimizers.

        `gradients` maps a feature to the gradient of this core's activation. `rates` are float32
        [tables]. `kept` comes from `look_up` of the same arrays.
        """
        flat = [
            gradients[one.key].reshape(self.batch // self.cores, -1)
            for features in self._features
            for one in features
        ]
        together = jnp.concatenate(flat, 1)
        if self.cores > 1:
            together = lax.all_gather(together, AXIS, tiled=True)
        new, start = [], 0
        for stack, features, array, of_stack in zip(
            self.stacks, self._features, arrays, kept, strict=True
        ):
            size = sum(one.segments for one in features) * stack.dimension
            given = _packed(stack, together[:, start : start + size])
            start += size
            of_tables = rates[np.array([self._numbers[one.name] for one in stack.tables])]
            for sorted_rows in self._passes(stack, of_stack):
                array = self._update(stack, array, of_stack, sorted_rows, given, of_tables)
            new.append(array)
        return new

    def _gathered(self, ids: Any) -> Any:
        """Returns the ids of all cores. A single all-gather moves ids and the bits of gains."""
        if self.cores == 1:
            return ids
        leaves, tree = jax.tree.flatten(ids)
        words = [
            lax.bitcast_convert_type(one, jnp.int32) if one.dtype == jnp.float32 else one
            for one in leaves
        ]
        everyone = lax.all_gather(jnp.concatenate(words), AXIS)
        made, start = [], 0
        for leaf in leaves:
            part = everyone[:, start : start + leaf.size].reshape(-1)
            start += leaf.size
            is_float = leaf.dtype == jnp.float32
            made.append(lax.bitcast_convert_type(part, jnp.float32) if is_float else part)
        return jax.tree.unflatten(tree, made)

    def _occurrences(
        self, stack: Stack, features: Sequence[DeviceFeature], ids: Mapping[str, Mapping[str, Any]]
    ) -> StackIds:
        me = lax.axis_index(AXIS).astype(jnp.int32) if self.cores > 1 else jnp.int32(0)
        parts: dict[str, list[Any]] = {
            name: [] for name in ("rows", "segments", "gains", "owners", "cores")
        }
        of_sample, first = sum(one.segments for one in features), 0

        def form(feature: DeviceFeature) -> Any:
            return [(name, one.shape) for name, one in sorted(ids[feature.key].items())]

        # Features of the same form are computed together. XLA compiles fewer ops then.
        for _, alike in itertools.groupby(features, form):
            group = list(alike)
            of_group = {
                name: jnp.stack([ids[one.key][name] for one in group]) for name in ids[group[0].key]
            }
            given = of_group["ids"]
            turn = _column(stack.turn[one.table] for one in group)
            base = _column(stack.base[one.table] for one in group)
            each = _column(one.segments for one in group)
            before = first + np.cumsum(each, 0, np.int32) - each
            first += int(each.sum())
            is_own = (given >= 0) & ((given + turn) % self.cores == me)
            in_order = jnp.broadcast_to(jnp.arange(given.shape[1], dtype=jnp.int32), given.shape)
            segments = of_group.get("segments", in_order)
            samples, number = segments // each, segments % each
            ones = jnp.ones(given.shape, jnp.float32)
            parts["rows"].append(jnp.where(is_own, base + given // self.cores, _NONE))
            parts["segments"].append(samples * of_sample + before + number)
            parts["gains"].append(of_group.get("gains", ones))
            parts["owners"].append(jnp.broadcast_to((me - turn) % self.cores, given.shape))
            parts["cores"].append(samples // (self.batch // self.cores))
        whole = {
            name: jnp.concatenate([one.reshape(-1) for one in of_groups])
            for name, of_groups in parts.items()
        }
        if not any("gains" in ids[feature.key] for feature in features):
            whole["gains"] = None
        total = self.batch * of_sample
        one_each = not any("segments" in ids[feature.key] for feature in features)
        return StackIds(**whole, total=total, one_each=one_each, sorted=self._sorted(whole["rows"]))

    def _chunk(self, count: int) -> int:
        # An id more, so that the only chunk of a single device ends with a `_NONE`.
        return min(count + 1, -(-int(count / self.cores * _SLACK) // 8) * 8)

    def _sorted(self, rows: Any) -> _Sorted:
        count = rows.size
        size = self._chunk(count)
        places = jnp.arange(count, dtype=jnp.int32)

        def all_of_them() -> tuple[Any, ...]:
            return tuple(lax.sort((rows, places), num_keys=1))

        def own_alone() -> tuple[Any, ...]:
            own = rows != _NONE
            to = jnp.where(own, jnp.cumsum(own, dtype=jnp.int32) - 1, count)
            few = jnp.full([size], _NONE, jnp.int32).at[to].set(rows, mode="drop")
            at = jnp.zeros([size], jnp.int32).at[to].set(places, mode="drop")
            few, at = lax.sort((few, at), num_keys=1)
            more = (0, count - size)
            return jnp.pad(few, more, constant_values=_NONE), jnp.pad(at, more)

        if size < count:  # Sorting a single chunk is much faster.
            fits = jnp.sum(rows != _NONE, dtype=jnp.int32) <= size
            ascending, at = lax.cond(fits, own_alone, all_of_them)
        else:
            ascending, at = all_of_them()
        more = (0, (count // size + 1) * size - count)
        return _Sorted(jnp.pad(ascending, more, constant_values=_NONE), jnp.pad(at, more))

    def _sums(self, stack: Stack, weights: Any, given: StackIds) -> Any:
        """Returns this device's part of the activations of all samples, [batch, -1]."""
        if self.cores == 1 and given.one_each and given.gains is None:
            values = _rows_of(stack, weights, given.rows).reshape(-1, self.batch, stack.dimension)
            return values.swapaxes(0, 1).reshape(self.batch, -1)
        size, count = self._chunk(given.rows.size), -(-given.total // stack.pack)

        def turn(state: tuple[Any, Any]) -> tuple[Any, Any]:
            number, sums = state
            rows, places = (_cut(one, number, size) for one in given.sorted)
            values = _rows_of(stack, weights, rows)
            if given.gains is not None:
                values = values * given.gains[places][:, None]
            segments = given.segments[places]
            values, _ = _in_lanes(stack, segments, values)
            to = jnp.where(rows == _NONE, count, segments // stack.pack)
            return number + jnp.int32(1), sums.at[to].add(values, mode="drop")

        start = self._varying(jnp.zeros([count, stack.lanes], jnp.float32))
        own = _count(given.sorted.rows)
        _, sums = lax.while_loop(lambda one: one[0] * size < own, turn, (jnp.int32(0), start))
        sums = sums.reshape(-1, stack.width)[: given.total, : stack.dimension]
        return sums.reshape(self.batch, -1)

    def _passes(self, stack: Stack, given: StackIds) -> Iterator[_Sorted]:
        """Yields the sorted rows for each successive step of the optimizer."""
        if stack.accumulates or self.cores == 1:
            yield given.sorted
            return
        for turn in range(self.cores):  # A row's owner goes first.
            other = jnp.where(turn - 1 < given.owners, turn - 1, turn)
            core = given.owners if turn == 0 else other
            yield self._sorted(jnp.where(given.cores == core, given.rows, _NONE))

    def _update(
        self,
        stack: Stack,
        arrays: Sequence[Any],
        given: StackIds,
        sorted_rows: _Sorted,
        gradients: Any,
        rates: Any,
    ) -> list[Any]:
        """Returns the arrays after a step of the optimizer on each row of `sorted_rows`.

        The ids of a row may span chunks. Each turn therefore passes its last row, and the gradient
        summed so far, to the next turn as row 0. The last turn ends with a `_NONE`.
        """
        size = self._chunk(given.rows.size)

        def turn(state: tuple[Any, ...]) -> tuple[Any, ...]:
            number, filled, last, so_far, lanes_so_far, *into = state
            rows, places = (_cut(one, number, size) for one in sorted_rows)
            values = _rows_of(stack, gradients, given.segments[places])
            if given.gains is not None:
                values = values * given.gains[places][:, None]
            values = jnp.where((rows != _NONE)[:, None], values, 0)
            values, lanes = _in_lanes(stack, rows, values)
            packed = jnp.where(rows == _NONE, _NONE, rows // stack.pack)
            is_new = packed != jnp.concatenate([last[None], packed[:-1]])
            to = jnp.cumsum(is_new, dtype=jnp.int32) - (number == 0).astype(jnp.int32)
            add = {"mode": "drop", "indices_are_sorted": True}
            found = jnp.full([size + 1], _NONE, jnp.int32).at[to].set(packed, **add)
            found = found.at[0].set(jnp.where(number == 0, found[0], last))
            sums = jnp.zeros([size + 1, stack.lanes], jnp.float32).at[0].set(so_far)
            sums = sums.at[to].add(values, **add)
            touched = jnp.zeros([size + 1, stack.pack], jnp.float32).at[0].set(lanes_so_far)
            touched = touched.at[to].add(lanes, **add)
            end = to[-1]
            into = write(into, filled, found.at[end].set(_NONE), sums, touched)
            filled = filled + end
            return number + jnp.int32(1), filled, found[end], sums[end], touched[end], *into

        def into_arrays(into: Any, _: Any, rows: Any, sums: Any, touched: Any) -> Any:
            # Otherwise XLA may gather rows while the inputs of the sums still exist.
            rows, sums, touched = lax.optimization_barrier((rows, sums, touched))
            at = _places(stack, rows)
            after = _stepped(stack, into, at, rows, sums, rates)
            after = _only_touched(stack, after, touched)
            return _set(into, at, [new for new, _ in after])

        def beside(into: Any, filled: Any, *closed: Any) -> Any:
            return [
                lax.dynamic_update_slice_in_dim(kept, new, filled, 0)
                for kept, new in zip(into, closed[:2], strict=True)
            ]

        write: Callable[..., list[Any]] = into_arrays
        into = list(arrays)
        if stack.all_rows:
            count = sorted_rows.rows.size + size + 1
            rows, sums = jnp.full([count], _NONE, jnp.int32), jnp.zeros([count, stack.lanes])
            write, into = beside, [self._varying(rows), self._varying(sums.astype(jnp.float32))]
        own = _count(sorted_rows.rows)
        start = (
            jnp.int32(0),
            self._varying(jnp.int32(0)),
            self._varying(jnp.int32(-1)),
            self._varying(jnp.zeros([stack.lanes], jnp.float32)),
            self._varying(jnp.zeros([stack.pack], jnp.float32)),
            *into,
        )
        # <= adds a turn if the last chunk in use has no _NONE.
        _, _, _, _, _, *into = lax.while_loop(lambda one: one[0] * size <= own, turn, start)
        return self._every_row(stack, arrays, rates, *into) if stack.all_rows else into

    def _every_row(
        self, stack: Stack, arrays: Sequence[Any], rates: Any, rows: Any, sums: Any
    ) -> list[Any]:
        """Returns the arrays after a step on every row.

        `rows` are ascending packed rows, and `sums` their gradients. Other rows get gradient 0.
        """
        size = min(stack.packed, _BLOCK)
        rows = jnp.pad(rows, (0, size), constant_values=_NONE)
        sums = jnp.pad(sums, ((0, size), (0, 0)))

        def turn(state: tuple[Any, Any]) -> tuple[Any, Any]:
            number, of_turn = state
            first = number * size
            start = jnp.searchsorted(rows, first).astype(jnp.int32)
            found, of_found = (lax.dynamic_slice_in_dim(one, start, size) for one in (rows, sums))
            to = jnp.where(found - first < size, found - first, size)
            gradients = (
                jnp.zeros([size, stack.lanes], jnp.float32).at[to].set(of_found, mode="drop")
            )
            # Gather and scatter, because XLA copies an array whose slices a loop updates.
            at = first + jnp.arange(size, dtype=jnp.int32)
            after = _stepped(stack, of_turn, at, at, gradients, rates)
            return number + jnp.int32(1), _set(of_turn, at, [new for new, _ in after])

        turns = -(-stack.packed // size)
        start = jnp.int32(0), list(arrays)
        return list(lax.while_loop(lambda one: one[0] < turns, turn, start)[1])

    def _varying(self, value: Any) -> Any:
        return lax.pcast(value, AXIS, to="varying") if self.cores > 1 else value


def _column(values: Iterable[int]) -> np.ndarray:
    """Returns int32 [n, 1]."""
    return np.array([*values], np.int32)[:, None]


def _count(rows: Any) -> Any:
    return jnp.sum(rows != _NONE, dtype=jnp.int32)


def _cut(values: Any, number: Any, size: int) -> Any:
    return lax.dynamic_slice_in_dim(values, number * size, size)


def _rows_of(stack: Stack, array: Any, rows: Any) -> Any:
    """Returns the values [n, dimension] of local rows [n], with 0 for `_NONE`."""
    packed = array.at[rows // stack.pack].get(mode="fill", fill_value=0)
    if stack.pack > 1:
        of_row = (rows % stack.pack)[:, None] == jnp.arange(stack.pack, dtype=jnp.int32)
        parts = packed.reshape(-1, stack.pack, stack.width)
        packed = jnp.sum(jnp.where(of_row[:, :, None], parts, 0), 1)
    return packed[:, : stack.dimension]


def _packed(stack: Stack, values: Any) -> Any:
    """Reshapes values [batch, -1] to packed rows [n, lanes], as in a table."""
    values = values.reshape(-1, stack.dimension)
    more = (0, -len(values) % stack.pack), (0, stack.width - stack.dimension)
    return jnp.pad(values, more).reshape(-1, stack.lanes)


def _in_lanes(stack: Stack, rows: Any, values: Any) -> tuple[Any, Any]:
    """Moves the values of local rows into the lanes of their packed rows.

    Returns the values [n, lanes], and a one-hot [n, pack] of each row's position.
    """
    values = jnp.pad(values, ((0, 0), (0, stack.width - stack.dimension)))
    of_row = (rows % stack.pack)[:, None] == jnp.arange(stack.pack, dtype=jnp.int32)
    if stack.pack > 1:
        values = jnp.where(of_row[:, :, None], values[:, None], 0).reshape(-1, stack.lanes)
    return values, of_row.astype(jnp.float32)


def _places(stack: Stack, rows: Any) -> Any:
    """Replaces each `_NONE` by a distinct index beyond the array, so that indices are unique."""
    return jnp.where(rows == _NONE, stack.packed + jnp.arange(rows.size, dtype=jnp.int32), rows)


def _stepped(
    stack: Stack, arrays: Any, at: Any, rows: Any, gradients: Any, rates: Any
) -> list[tuple[Any, Any]]:
    """Returns, for each array, its rows after a step and before the step."""
    get = {"mode": "fill", "fill_value": 1, "unique_indices": True, "indices_are_sorted": True}
    before = [one.at[at].get(**get) for one in arrays]
    after = stack.step(_rates(stack, rows, rates), gradients, before[0], tuple(before[1:]))
    return list(zip(after, before, strict=True))


def _only_touched(stack: Stack, after: list[tuple[Any, Any]], touched: Any) -> Any:
    """Restores rows that no id looks up, if they share a packed row with updated rows."""
    if stack.pack == 1:
        return after
    lanes = jnp.repeat(touched > 0, stack.width, axis=1)
    return [(jnp.where(lanes, new, old), old) for new, old in after]


def _rates(stack: Stack, rows: Any, rates: Any) -> Any:
    """Returns the rate of each packed row, [n, 1], or a scalar for a stack of a single table."""
    if len(stack.tables) == 1:
        return rates[0]
    return rates[jnp.searchsorted(stack.first_packed, rows, side="right") - 1][:, None]


def _set(arrays: Any, at: Any, values: Any) -> list[Any]:
    put = {"mode": "drop", "unique_indices": True, "indices_are_sorted": True}
    return [
        one.at[at].set(new.astype(one.dtype), **put)
        for one, new in zip(arrays, values, strict=True)
    ]
