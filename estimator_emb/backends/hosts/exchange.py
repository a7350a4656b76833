"""Moves rows of tables from the hosts that save them to the devices that train them, and back.

A host has consecutive ids of each table, from `starts[host]` to `starts[host + 1]`. A device has
every N-th id: see `device_tables`. Rows travel in turns of at most `_TURN_BYTES` per device. Each
turn is an all-to-all over all devices. No host and no device ever holds a whole table.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from estimator_emb.backends.xla.host_rows import give_back, in_pages

_TURN_BYTES = 4 << 20


class Exchange:
    """Exchanges rows between the devices of all hosts. Devices are ordered host by host."""

    def __init__(self, devices: Sequence[Any]):
        mesh = Mesh(np.array(devices), ("core",))
        self._count = len(devices)
        self._devices = devices
        self._each = len(mesh.local_devices)
        self.own = [
            number for number, one in enumerate(devices) if one.process_index == jax.process_index()
        ]
        """Numbers of this host's devices."""
        self._by_core = NamedSharding(mesh, PartitionSpec("core"))

        def swap(sent: Any) -> Any:
            return lax.all_to_all(sent[0], "core", 0, 0, tiled=True)[None]

        by_core = PartitionSpec("core")
        self._swap = jax.jit(
            jax.shard_map(swap, mesh=mesh, in_specs=by_core, out_specs=by_core, check_vma=False)
        )

    def divided(
        self, stack: Any, values: Sequence[np.ndarray], number: int
    ) -> Iterator[np.ndarray]:
        """Yields the parts of a stack's array `number` for each of this host's devices.

        `values` are this host's rows of each table.
        """
        rows = {
            one.name: self._to_devices(of_table, _starts(one), stack.turn[one.name])
            for one, of_table in zip(stack.tables, values, strict=True)
        }
        give_back(values)
        for core in self.own:
            of_core = {name: of_cores.pop(core) for name, of_cores in rows.items()}
            yield stack.filled(of_core, stack.fills[number])

    def joined(
        self, stack: Any, shards: Mapping[int, np.ndarray]
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yields each table's name and rows of this host. `shards` maps a device to its part."""
        for table in stack.tables:
            own = {device: stack.rows_of(device, one, table) for device, one in shards.items()}
            yield table.name, self._from_devices(own, _starts(table), stack.turn[table.name])

    def _to_devices(self, rows: np.ndarray, starts: list[int], turn: int) -> dict[int, np.ndarray]:
        """Moves rows of this host's ids to the devices that train them.

        Device (id + turn) % N trains an id. Returns this host's devices -> their rows.
        """
        own = {
            device: np.empty(
                [len(range((device - turn) % self._count, starts[-1], self._count)), rows.shape[1]],
                np.float32,
            )
            for device in self.own
        }
        first = starts[self.own[0] // self._each]
        for number, size in self._turns(starts, rows.shape[1]):
            sent = self._empty(size, rows.shape[1])
            for mine, of_mine in zip(self.own, sent, strict=True):
                for device in range(self._count):
                    ids = self._ids(starts, turn, number, size, mine, device)
                    of_mine[device, : len(ids)] = rows[
                        ids.start - first : ids.stop - first : ids.step
                    ]
            for device, received in self._swapped(sent):
                for source in range(self._count):
                    ids = self._ids(starts, turn, number, size, source, device)
                    at = ids.start // self._count
                    own[device][at : at + len(ids)] = received[source, : len(ids)]
        return own

    def _from_devices(
        self, own: Mapping[int, np.ndarray], starts: list[int], turn: int
    ) -> np.ndarray:
        """Reverses `_to_devices`. Returns the rows of this host's ids."""
        host = self.own[0] // self._each
        width = next(iter(own.values())).shape[1]
        rows = in_pages(starts[host + 1] - starts[host], width)
        for number, size in self._turns(starts, width):
            sent = self._empty(size, width)
            for device, of_device in zip(self.own, sent, strict=True):
                for source in range(self._count):
                    ids = self._ids(starts, turn, number, size, source, device)
                    at = ids.start // self._count
                    of_device[source, : len(ids)] = own[device][at : at + len(ids)]
            for mine, received in self._swapped(sent):
                for device in range(self._count):
                    ids = self._ids(starts, turn, number, size, mine, device)
                    first = starts[host]
                    rows[ids.start - first : ids.stop - first : ids.step] = received[
                        device, : len(ids)
                    ]
        return rows

    def _turns(self, starts: Sequence[int], width: int) -> Iterator[tuple[int, int]]:
        """Yields (number, rows that a device sends to each other device) of each turn."""
        longest = int(np.diff(starts).max())
        together = self._each * self._count
        size = max(1, min(_TURN_BYTES // (self._count * width * 4), -(-longest // together)))
        for number in range(-(-longest // (together * size))):
            yield number, size

    def _ids(
        self, starts: Sequence[int], turn: int, number: int, size: int, source: int, device: int
    ) -> range:
        """Returns the ids of the rows that `source` sends to `device` in a turn."""
        host, of_host = divmod(source, self._each)
        start = starts[host] + (number * self._each + of_host) * self._count * size
        end = min(start + self._count * size, starts[host + 1])
        first = start + (device - turn - start) % self._count
        return range(first, max(first, end), self._count)

    def _empty(self, size: int, width: int) -> list[np.ndarray]:
        return [np.zeros([self._count, size, width], np.float32) for _ in self.own]

    def _swapped(self, sent: Sequence[np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
        """Exchanges rows. Yields (number, received rows) of each of this host's devices."""
        placed = [
            jax.device_put(one[None], self._devices[number])
            for number, one in zip(self.own, sent, strict=True)
        ]
        shape = (self._count, *sent[0].shape)
        given = jax.make_array_from_single_device_arrays(shape, self._by_core, placed)
        received = {one.device: one.data for one in self._swap(given).addressable_shards}
        for number in self.own:
            yield number, np.asarray(received[self._devices[number]])[0]


def _starts(table: Any) -> list[int]:
    """Divides a table evenly. Returns the first id of each host, then the number of rows."""
    rows, more = divmod(table.rows, jax.process_count())
    return [host * rows + min(host, more) for host in range(jax.process_count() + 1)]
