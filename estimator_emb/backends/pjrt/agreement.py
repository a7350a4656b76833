"""Keeps the hosts of a training in agreement, so that all stop at the same step.

All hosts meet before each step, and wherever else a host waits for the others. Each host reports
its next action. If a host has failed, it then sends its error to the others, and all hosts end. The
chief may ask waiting hosts to take part in a save.
"""

import contextlib
import enum
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.guards import stopping
from estimator_emb.reporting import console
from estimator_emb.reporting.console import logger


class State(enum.IntEnum):
    """A host's next action. The last four are the chief's. After them, other hosts keep waiting."""

    STEP = 0
    BUILD = 1
    LOAD = 2
    DONE = 3
    FAILED = 4
    FETCH = 5
    WRITE = 6
    WRITTEN = 7
    AWAY = 8


class HostError(RuntimeError):
    """Raised when another host has failed, with that host's error. It ends all hosts."""


class Agreement:
    """Connects this host with the other hosts of a training.

    Attributes:
      serve: takes part in a save by the chief. Takes a `State` and the path of the checkpoint.
    """

    def __init__(self, hosts: Any):
        self._hosts = hosts
        self.serve: Callable[[State, bytes], None] | None = None
        self._training = self._save_failed = self._is_away = False
        self._over: HostError | None = None
        self._signal = 0
        """Number of the signal that ends the training on all hosts, or 0."""

    @property
    def number(self) -> int:
        return int(self._hosts.number)

    @property
    def count(self) -> int:
        return int(self._hosts.count)

    @property
    def own_devices(self) -> list[Any]:
        return list(self._hosts.own_devices)

    @property
    def is_chief(self) -> bool:
        return self.number == 0

    @contextlib.contextmanager
    def training(self, model_dir: str) -> Iterator[None]:
        """Surrounds a training. All hosts leave it together, and if a host fails, all fail."""
        self._training, self._over, self._signal = True, None, 0
        try:
            with self._told():
                self.same("model_dir", zlib.crc32(model_dir.encode()))
                try:
                    yield
                except (KeyboardInterrupt, SystemExit):
                    if self._signal:
                        self._end()
                    raise
                self._end()
        finally:
            self._training, self.serve = False, None
            self.runs(lambda: None)

    def _end(self) -> None:
        """Waits until all hosts have ended the training, and takes part in the last save."""
        while any(row[0] != State.DONE for row in self._meet(State.DONE)):
            pass

    def shared(self, call: Callable[[], Any]) -> Any:
        """Returns the chief's result of `call` on all hosts. In a training, every host calls it."""
        if self._training:
            return self._alone(call) if self.is_chief else call()
        self._over = None
        with self._told():
            result = self._alone(call) if self.is_chief else None
            self._meet(State.DONE)
            (told, *_) = self._hosts.tell(_packed(result) if self.is_chief else b"")
        return result if self.is_chief else _unpacked(told)

    def _alone(self, call: Callable[[], Any]) -> Any:
        """Returns the result of `call` on the chief, while the other hosts wait."""
        if self._is_away:
            return call()
        self._meet(State.AWAY)
        self._is_away = True
        try:
            with self._hosts.away():
                return call()
        finally:
            self._is_away = False

    def same(self, what: str, digest: int) -> None:
        """Raises ValueError unless all hosts pass the same `digest` of `what`."""
        rows = self._meet(State.BUILD, digest & 0x7FFFFFFF)
        other = next((n for n, row in enumerate(rows) if row[2] != rows[0][2]), None)
        if other is not None:
            raise ValueError(
                f"{what} on {self._hosts.names[other]} is another than on {self._hosts.names[0]}: "
                "give all hosts the same program, arguments, environment and versions."
            )

    def runs(self, running: Callable[[], Any]) -> None:
        """Sets the function that returns the arrays that the devices still compute."""
        self._hosts.running = running

    def before_load(self) -> None:
        self._meet(State.LOAD)

    def from_chief(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        return list(self._hosts.from_chief(values))

    def batch_of_chief(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Replaces tensors by the chief's values in each step. They have dtypes of an infeed."""

        def exchange(*values: np.ndarray) -> list[np.ndarray]:
            if any(row[0] == State.DONE for row in self._meet(State.LOAD)):
                raise StopIteration
            return self.from_chief(values)

        made = tf.numpy_function(exchange, tensors, [one.dtype for one in tensors])
        for one, like in zip(made, tensors, strict=True):
            one.set_shape(like.shape)
        return list(made)

    def shared_bytes(self, own: bytes) -> bytes:
        """Returns the chief's bytes on all hosts."""
        return bytes(self._hosts.tell(own)[0])

    def before_step(self, sizes: Sequence[int], capacities: Sequence[int]) -> Sequence[int]:
        """Returns the largest sizes of any host if a host exceeds `capacities`, else `sizes`.

        Raises StopIteration if the input of another host has ended.
        """
        exceeds = any(size > most for size, most in zip(sizes, capacities, strict=True))
        rows = self._meet(State.STEP, int(exceeds))
        if any(row[0] == State.DONE for row in rows):
            raise StopIteration
        self._signal = self._signal or int(rows[:, 1].max())
        if self._signal:
            stopping.agree(self._signal)
        return self._hosts.numbers(sizes).max(0).tolist() if rows[:, 2].any() else sizes

    def save(self, state: State, path: bytes = b"") -> None:
        """Asks the other hosts to take part in the chief's save. `state` is FETCH or WRITE."""
        self._meet(state)
        self._hosts.tell(path)

    def written(self) -> None:
        """Waits until the other hosts have written their parts."""
        self._meet(State.WRITTEN)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Sends an error inside to the other hosts. Raises the error of a lost or failed host."""
        try:
            yield
        except BaseException as error:
            ended = self._hosts.lost or self._over
            if not self.is_chief:
                console.tell_elsewhere(ended or error)
            if ended is not None:
                raise ended from None
            if not (isinstance(error, (KeyboardInterrupt, SystemExit)) and self._signal):
                with contextlib.suppress(HostError):
                    text = f"{type(error).__name__}: {error}"
                    self._meet(State.FAILED, int(self._save_failed), text)
                if self.is_chief and str(self._over or ""):
                    logger.error("%s", self._over)
            raise

    def _meet(self, state: State, number: int = 0, text: str = "") -> np.ndarray:
        while True:
            rows = self._hosts.meet(state, stopping.received(), number)
            failed = [row for row in rows if row[0] == State.FAILED]
            chief = State(rows[0][0])
            # A host that failed after its step still takes part in the save of that step.
            if failed and (chief < State.FETCH or any(row[2] for row in failed)):
                self._fail(self._hosts.tell(text.encode()))
            if chief < State.FETCH or self.is_chief:
                return rows
            if chief == State.AWAY:
                self._hosts.wait_for_chief()
                continue
            path = self._hosts.tell(b"")[0] if chief != State.WRITTEN else b""
            if self.serve is not None:
                try:
                    self.serve(chief, path)
                except Exception:
                    self._save_failed = True
                    raise

    def _fail(self, texts: Sequence[bytes]) -> None:
        """Raises a HostError with the errors of all other hosts that have failed."""
        lines = [
            f"{name}: {text.decode()}"
            for name, text in zip(self._hosts.names, texts, strict=True)
            if text not in (b"", texts[self.number])
        ]
        self._over = HostError("\n".join(lines))
        raise self._over


def _packed(result: Any) -> bytes:
    """Serializes the result of an evaluation or export: a dict of scalars and arrays, or bytes."""
    message = tf.compat.v1.NameAttrList()
    for name, value in (result if isinstance(result, dict) else {"": result}).items():
        message.attr[name].tensor.CopyFrom(tf.make_tensor_proto(np.asarray(value)))
    return bytes(message.SerializeToString())


def _unpacked(text: bytes) -> Any:
    """Reverses `_packed`. Unlike a pickle, such a message cannot run code."""
    tensors = tf.compat.v1.NameAttrList.FromString(text).attr.items()
    named = {name: tf.make_ndarray(one.tensor)[()] for name, one in tensors}
    return named.get("", named)
