"""Joins the hosts of a training, and lets them exchange numbers and texts, by jax.distributed.

A host is a process. Host 0 is the chief. All hosts must call `meet`, `tell`, `numbers` and
`from_chief` in the same order. Each call waits for all hosts, up to half an hour. A process that
ends tells the other hosts that it has left.
"""

import atexit
import contextlib
import itertools
import logging
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from estimator_emb.backends.xla.devices import coordination

_QUIET_SECONDS, _JOIN_SECONDS = 5, 300
"""How long a host waits for the others at its start until it says so, and until it gives up."""
_HEARTBEAT_SECONDS = 10
"""A host is lost if it is silent for this time."""
_SHUTDOWN_SECONDS = 7 * 24 * 3600
"""Longest wait for the other hosts at a process's end. The chief may still evaluate or export."""
_ANSWER_SECONDS = 3
"""Time for the other hosts to answer after a host is lost. After a heartbeat, jax aborts."""
_LOST = "estimator_emb/lost"
_AWAY = "estimator_emb/away"
_TELLS, _LEFT = -1, -2
"""Reserved first numbers of a meeting. Callers use numbers from 0."""


class LostHostError(RuntimeError):
    """Raised if another host no longer answers, or has left."""


def join(count: int | None, number: int | None, coordinator: str | None) -> None:
    """Joins this process with the other hosts, unless it has already joined them.

    jax finds the values of arguments that are None.

    Args:
      count: the number of hosts.
      number: the number of this host, from 0.
      coordinator: 'ADDRESS:PORT' of host 0.

    Raises:
      RuntimeError: jax finds no hosts, or they have not joined within five minutes.
    """
    if jax.distributed.is_initialized():
        return
    failed: list[Exception] = []
    # These names of host 0 mean this machine on every host.
    on_one_machine = (coordinator or "").startswith(("localhost:", "127.", "[::1]:"))

    def initialize() -> None:
        try:
            jax.distributed.initialize(
                coordinator,
                count,
                number,
                _device_ids(),
                initialization_timeout=_SHUTDOWN_SECONDS,  # Then jax would abort the process.
                heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
                shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
                coordinator_bind_address=coordinator if on_one_machine else None,
            )
        except (RuntimeError, ValueError) as error:  # E.g. jax does not recognize a cluster.
            failed.append(error)

    joining = threading.Thread(target=initialize, daemon=True)
    joining.start()
    joining.join(_QUIET_SECONDS)
    if joining.is_alive():
        _say(f"Waits for {_awaited()}.")
        joining.join(_JOIN_SECONDS)
    if joining.is_alive():
        atexit.register(_end)
        raise RuntimeError(f"after {_JOIN_SECONDS} s, this host still waits for {_awaited()}")
    if failed:
        raise RuntimeError(str(failed[0])) from failed[0]


def _device_ids() -> list[int] | None:
    """Returns [], which makes jax take all GPUs of this host, or None for jax's own choice.

    With SLURM, jax would take one GPU per task, even if a host has a single task.
    """
    alone = re.fullmatch(r"1(\(x\d+\))?", os.environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    return [] if alone and "JAX_LOCAL_DEVICE_IDS" not in os.environ else None


def _awaited() -> str:
    """Describes the hosts for which this one waits, with the address of host 0."""
    address = coordination.coordinator_address or "an address that jax does not know yet"
    if coordination.service is not None:
        return f"the other hosts to reach host 0, this one, at {address}"
    name, _, port = address.rpartition(":")
    try:
        socket.create_connection((name.strip("[]"), port), timeout=_ANSWER_SECONDS).close()
    except OSError as error:
        return f"host 0 at {address} ({error.strerror or error})"
    return f"host 0 at {address}, which answers, and for the hosts that it waits for"


class Hosts:
    """The hosts that jax.distributed has joined.

    Attributes:
      count: the number of hosts.
      number: the number of this host.
      devices: the devices of the platform, host by host.
      names: the name of each host for messages, such as 'host 1 (machine-b)'.
      lost: the error about a host that no longer answers or has left, if any.
      running: returns the arrays that the devices still compute. On CPUs, exchanges wait for them.

    Raises ValueError if hosts have different numbers of devices.
    """

    def __init__(self, platform: str | None):
        self.count, self.number = jax.process_count(), jax.process_index()
        self.lost: LostHostError | None = None
        self.running: Callable[[], Any] = lambda: None
        found = jax.devices(platform)
        self.devices = sorted(found, key=lambda one: (one.process_index, one.id))
        mesh = Mesh(np.array(_one_of_each_host(self.devices)), ("host",))
        self._by_host = NamedSharding(mesh, PartitionSpec("host"))
        same = NamedSharding(mesh, PartitionSpec())
        self._gather = jax.jit(lambda values: values, out_shardings=same)
        if not _members:
            atexit.register(_leave)
        _members.append(self)
        self.names = [f"host {number}" for number in range(self.count)]
        machines = [one.decode() for one in self.tell(socket.gethostname().encode())]
        self.names = [f"host {number} ({one})" for number, one in enumerate(machines)]
        counts = [sum(one.process_index == host for one in found) for host in range(self.count)]
        if len(set(counts)) > 1:
            each = ", ".join(
                f"{name} has {count}" for name, count in zip(self.names, counts, strict=True)
            )
            raise ValueError(
                "TPUConfig: with device='pjrt', all hosts must have the same number of devices: "
                f"{each}. Give each the same machine, or the same devices of it."
            )

    def meet(self, first: int, second: int = 0, third: int = 0) -> np.ndarray:
        """Returns three numbers of each host, int32 [hosts, 3]. Raises LostHostError."""
        rows = self.numbers([first, second, third])
        if left := [name for name, row in zip(self.names, rows, strict=True) if row[0] == _LEFT]:
            self.lost = LostHostError(
                f"{' and '.join(left)} ended the program, and {self.names[self.number]} goes on: "
                "all hosts must construct the same estimators, and call the same methods of them."
            )
            raise self.lost
        return rows

    def tell(self, text: bytes) -> list[bytes]:
        """Returns the texts of all hosts. Raises LostHostError."""
        sizes = self.meet(_TELLS, len(text))[:, 1]
        if not sizes.any():
            return [b""] * self.count
        padded = np.zeros([sizes.max()], np.uint8)
        padded[: len(text)] = np.frombuffer(text, np.uint8)
        return [
            of_host[:size].tobytes()
            for of_host, size in zip(self._gathered(padded), sizes, strict=True)
        ]

    def numbers(self, own: Sequence[int]) -> np.ndarray:
        """Returns the numbers of all hosts, int32 [hosts, n]. Raises LostHostError."""
        return self._gathered(np.asarray(own, np.int32))

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Surrounds work of the chief while the other hosts are in `wait_for_chief`."""
        try:
            yield
        finally:
            coordination.client.key_value_set(f"{_AWAY}/{next(_aways)}", "")

    def wait_for_chief(self) -> None:
        """Waits until the chief's `away` has ended. For hosts other than the chief."""
        try:
            key = f"{_AWAY}/{next(_aways)}"
            coordination.client.blocking_key_value_get(key, _SHUTDOWN_SECONDS * 1000)
        except RuntimeError as error:
            raise self._lost(error) from None

    def leave(self) -> None:
        """Tells the other hosts that this process ends, and waits until all of them end, too."""
        while not (self._exchanged(np.array([_LEFT, 0, 0], np.int32))[:, 0] == _LEFT).all():
            pass

    def from_chief(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns the chief's arrays. Other hosts give arrays of the same shapes and dtypes."""
        try:
            with jax.enable_x64(True):
                return list(multihost_utils.broadcast_one_to_all(list(values)))
        except (RuntimeError, ValueError) as error:
            raise self._lost(error) from None

    def _exchanged(self, values: np.ndarray) -> np.ndarray:
        if self.devices[0].platform == "cpu":
            jax.block_until_ready(self.running())
        of_hosts = jax.make_array_from_process_local_data(self._by_host, values[None])
        return np.asarray(self._gather(of_hosts).addressable_data(0))

    def _gathered(self, values: np.ndarray) -> np.ndarray:
        try:
            return self._exchanged(values)
        except (RuntimeError, ValueError) as error:
            raise self._lost(error) from None

    def _lost(self, error: Exception) -> LostHostError:
        """Finds the hosts that no longer answer, and returns the error to raise."""
        reason = str(error).splitlines()[0]
        # If host 0 is lost, jax ends this process at once, so the first message must not wait.
        _say(
            f"{self.names[self.number]} has lost another host ({reason}). It is host 0 if no other "
            "is named below."
        )
        lost = " and ".join(self.names[number] for number in self._silent())
        text = (
            f"Lost {lost or 'another host'} ({reason}). All hosts end; start all of them again to "
            "go on from the last checkpoint."
        )
        _say(text)
        self.lost = LostHostError(text)
        atexit.register(_end)
        return self.lost

    def _silent(self) -> list[int]:
        """Returns the numbers of the hosts that do not report a lost host within a few seconds."""
        client = coordination.client
        try:
            client.key_value_set(f"{_LOST}/{self.number}", "")
            time.sleep(_ANSWER_SECONDS)
            answers = {int(key.rpartition("/")[2]) for key, _ in client.key_value_dir_get(_LOST)}
        except RuntimeError:  # Host 0 stores the answers, so it is the lost host.
            return [0]
        return [number for number in range(self.count) if number not in answers]


_members: list[Hosts] = []
"""The `Hosts` objects of this process, one for each estimator."""
_aways = itertools.count()
"""Numbers the times that the chief is away, over all estimators."""


def _leave() -> None:
    """Leaves the other hosts at the end of this process. If a host is lost, `_end` runs first."""
    with contextlib.suppress(RuntimeError, ValueError):  # jax itself waits for the others, too.
        _members[0].leave()


def _end() -> None:
    """Ends this process. Otherwise jax would wait for the lost host, and then abort the process."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _say(text: str) -> None:
    """Writes a line to stderr without buffering: jax may end the process soon."""
    sys.stderr.flush()
    os.write(2, f"estimator_emb: {text}\n".encode())


def _one_of_each_host(devices: Sequence[Any]) -> list[Any]:
    """Returns a device per host for exchanges. CPU devices are preferred: they wait for no step."""
    try:
        cpus = jax.devices("cpu")
    except RuntimeError:  # The program restricts jax to another platform.
        cpus = []
    first = {one.process_index: one for one in reversed(devices)}
    first |= {one.process_index: one for one in reversed(cpus)}
    return [first[number] for number in sorted(first)]
