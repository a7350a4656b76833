"""The default for a program whose process trains alone, in place of several hosts."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

Read = Callable[[Sequence[str], int], Sequence[np.ndarray]]
"""Returns an array of each named table: its weights if the number is 0, else a slot."""


class Alone:
    """A host that trains alone. Among several hosts, `hosts.agreement.Agreement` takes its place.

    Attributes:
      number: the number of this host, from 0. Host 0 is the chief.
      count: the number of hosts that train together.
    """

    number: int = 0
    count: int = 1

    def own(self, of_all: Any) -> Any:
        """Returns this host's part of a sequence with the same number of items for each host."""
        return of_all

    def quiet(self, config: Any) -> Any:
        """Returns a `RunConfig`. Only the chief writes and logs."""
        return config

    def without_chief_hooks(self, spec: Any, hooks: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Returns a training's spec and hooks. Only the chief saves, summarizes and logs."""
        return spec, hooks

    def training(self, model_dir: str) -> contextlib.AbstractContextManager[Any]:
        """Surrounds a training. All hosts leave it together, and if a host fails, all fail."""
        return contextlib.nullcontext()

    def shared(self, call: Callable[[], Any]) -> Any:
        """Returns the chief's result of `call` on all hosts. In a training, every host calls it."""
        return call()

    def shared_bytes(self, own: bytes) -> bytes:
        """Returns the chief's bytes on all hosts."""
        return own

    def same(self, what: str, digest: int) -> None:
        """Raises ValueError unless all hosts pass the same `digest` of `what`."""

    def runs(self, running: Callable[[], Any]) -> None:
        """Sets the function that returns the arrays that the devices still compute."""

    def before_load(self) -> None:
        """Waits for all hosts before they load the devices."""

    def from_chief(self, values: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Returns the chief's arrays on all hosts."""
        return values

    def batch_of_chief(self, tensors: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        """Replaces tensors by the chief's values in each step. They have dtypes of an infeed."""
        return tensors

    def before_step(self, sizes: Sequence[int], capacities: Sequence[int]) -> Sequence[int]:
        """Returns the largest sizes of any host if a host exceeds `capacities`, else `sizes`.

        Raises StopIteration if the input of another host has ended.
        """
        return sizes

    def before_fetch(self) -> None:
        """Asks the other hosts to take part when the chief fetches tables for a save."""

    def takes_part(self, live: Any, step: Any, initial: Read, savers: Sequence[Any]) -> None:
        """Lets this host save its part of the tables of a `DeviceStep` when the chief saves.

        `savers` are the program's own.
        """

    def with_parts(self, saved: tf.Tensor) -> tf.Tensor:
        """Adds the other hosts' parts to a checkpoint. `saved` is its path after a save."""
        return saved

    def rows_between(self, own: Any) -> Any:
        """Returns the object that divides tables among devices. Without other hosts it is `own`."""
        return own

    def check_divides(self, table: Any) -> None:
        """Raises ValueError if the hosts cannot divide a table's rows."""

    def rows_of(self, whole: tf.Tensor, start: int, end: int) -> tf.Tensor:
        """Returns rows of a table's initial value."""
        return whole[start:end]


ALONE = Alone()
"""It has no state, so one is enough."""
