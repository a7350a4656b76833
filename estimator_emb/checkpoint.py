# SPDX-License-Identifier: Apache-2.0
"""Reads checkpoints without a program, and puts the rows of legacy 'mod' tables in order.

A table in a checkpoint of ours is one tensor [vocabulary_size, dimension] in the order of its ids.
The legacy TPUEstimator wrote that only under `partition_strategy='div'`. Under 'mod', host i of H
held the rows of the ids i, i + H, i + 2H, ..., and the hosts' parts were saved one after the other
as if they were consecutive rows, so that row r of the saved tensor is not id r. `convert` reads
such a checkpoint and writes one in the order of the ids. A checkpoint does not say which it is.
"""

import dataclasses
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.optimizers import PARAMETERS
from estimator_emb.tables.partition import Partition

HELPER_PREFIX = "tpu_embedding_dummy_table_variable_"
"""Prefix of the names of variables by which the legacy TPUEstimator found its gradients."""

CHUNK_BYTES = 128 << 20
"""How many bytes are written at a time."""

_SUFFIXES = sorted({slot.suffix for optimizer in PARAMETERS for slot in optimizer.slots})


@dataclasses.dataclass(frozen=True)
class SavedVariable:
    """A variable of a checkpoint.

    Attributes:
      name: its name.
      shape: its shape.
      dtype: type of its values.
      slots: names of the optimizer's slots that belong to it, which are listed nowhere else.
      optimizer: class name, without 'Parameters', of the embedding optimizer that has these slots;
        None without slots, or if no optimizer has exactly these.
    """

    name: str
    shape: tuple[int, ...]
    dtype: tf.DType
    slots: tuple[str, ...] = ()
    optimizer: str | None = None

    @property
    def bytes(self) -> int:
        """Returns the size of the variable and its slots in bytes; 0 for strings."""
        size = 0 if self.dtype == tf.string else self.dtype.size
        return int(np.prod(self.shape, dtype=np.int64)) * size * (1 + len(self.slots))


def inspect(path: str) -> list[SavedVariable]:
    """Returns the variables of a checkpoint, sorted by name, each with its slots.

    A slot is known by the suffix of its name, for example `/Adagrad`, and by the shape, which is
    the variable's. Tables cannot be told from other matrices, since Adagrad of `tf.compat.v1.train`
    names its slots as the embedding optimizer does. No values are read.

    Args:
      path: prefix of a checkpoint, or a model directory, which stands for its latest checkpoint.

    Raises:
      ValueError: there is no checkpoint.
    """
    reader = tf.train.load_checkpoint(_prefix(path))
    shapes = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    dtypes = reader.get_variable_to_dtype_map()
    slots = {name: _slots(name, shapes) for name in shapes}
    owned = {slot for own_slots in slots.values() for slot in own_slots}
    return [
        SavedVariable(name, shapes[name], dtypes[name], slots[name], _optimizer(name, slots[name]))
        for name in sorted(set(shapes) - owned)
    ]


def _slots(name: str, shapes: dict[str, tuple[int, ...]]) -> tuple[str, ...]:
    possible = [name + suffix for suffix in _SUFFIXES]
    return tuple(slot for slot in possible if shapes.get(slot) == shapes[name])


def _optimizer(name: str, slots: Sequence[str]) -> str | None:
    suffixes = {slot.removeprefix(name) for slot in slots}
    for optimizer in PARAMETERS:
        if suffixes and suffixes == {slot.suffix for slot in optimizer.slots}:
            return optimizer.__name__.removesuffix("Parameters")
    return None


@dataclasses.dataclass(frozen=True)
class Conversion:
    """The result of `convert`.

    Attributes:
      path: prefix of the new checkpoint.
      permuted: names of the tables and slots whose rows were moved.
      dropped: names of the helper variables left out.
    """

    path: str
    permuted: tuple[str, ...]
    dropped: tuple[str, ...]


def convert(
    source: str,
    destination: str,
    tables: Iterable[str],
    hosts: int,
    to: str = "ids",
    progress: Callable[[int, int], Any] | None = None,
) -> Conversion:
    """Writes a checkpoint again, with the rows of 'mod' tables in the order of their ids.

    It copies all variables except the legacy helpers, `tpu_embedding_dummy_table_variable_*`. One
    variable at a time is in memory, and two or three copies of `CHUNK_BYTES` of it. The new
    checkpoint appears when it is complete. If its folder has no `checkpoint` file, one is written
    that names it, so that the folder serves as a model directory.

    Args:
      source: prefix of a checkpoint, or a model directory, which stands for its latest checkpoint.
      destination: prefix of the new checkpoint, or a folder, in which it has the source's name.
      tables: names of the tables; their slots move with them. Slots that `inspect` does not know as
        such must be named like tables.
      hosts: number of TPU hosts over which the tables were divided.
      to: 'ids', the default, turns the order of the legacy 'mod' into that of the ids; 'mod' does
        the reverse.
      progress: function called with the number of bytes done and that of all; None for none.

    Returns:
      What was done, as a `Conversion`.

    Raises:
      ValueError: there is no checkpoint, `destination` exists, a table is not in the checkpoint or
        is no matrix, `hosts` is less than 1, or `to` is something else.
    """
    if to not in ("ids", "mod"):
        raise ValueError(f"convert: to must be 'ids' or 'mod'; got {to!r}.")
    if hosts < 1:
        raise ValueError(f"convert: hosts must be at least 1; got {hosts}.")
    source = _prefix(source)
    destination = _new_path(source, destination)
    variables = {variable.name: variable for variable in _flat(inspect(source))}
    dropped = sorted(name for name in variables if _is_helper(name))
    permuted = _permuted(variables, list(tables)).difference(dropped)
    kept = [variable for name, variable in sorted(variables.items()) if name not in dropped]
    total = sum(variable.bytes for variable in kept)
    reader = tf.train.load_checkpoint(source)
    done = 0
    with _Writer(destination) as writer:
        for variable in kept:
            order = None
            if variable.name in permuted:
                partition = Partition(variable.shape[0], hosts, "mod")
                order = partition.places if to == "ids" else partition.ids_at
            for size in _copy(reader.get_tensor(variable.name), variable, order, writer):
                done += size
                if progress:
                    progress(done, total)
    return Conversion(destination, tuple(sorted(permuted)), tuple(dropped))


def _copy(
    value: Any, variable: SavedVariable, order: Callable[..., Any] | None, writer: "_Writer"
) -> Iterator[int]:
    if variable.dtype == tf.string:
        # NumPy's strings would lose zeros at their end, and TensorFlow saves no slices of strings.
        writer.add(variable, np.array(value, object), None)
        return
    value = np.asarray(value)
    if value.ndim == 0 or value.size == 0:
        writer.add(variable, value, None)
        yield value.nbytes
        return
    rows = max(1, CHUNK_BYTES // max(1, value[:1].nbytes))
    for start in range(0, len(value), rows):
        end = min(start + rows, len(value))
        chunk = value[start:end] if order is None else value[order(np.arange(start, end))]
        writer.add(variable, chunk, None if len(chunk) == len(value) else start)
        yield chunk.nbytes


class _Writer:
    """A writer that writes a checkpoint beside its destination, and moves it there at the end."""

    def __init__(self, destination: str):
        self._destination = destination
        self._folder = f"{destination}.{uuid.uuid4().hex}.tmp"
        self._prefixes: list[str] = []
        self._waiting: list[tuple[SavedVariable, np.ndarray, str]] = []
        self._bytes = 0

    def __enter__(self) -> "_Writer":
        tf.io.gfile.makedirs(self._folder)
        return self

    def add(self, variable: SavedVariable, value: np.ndarray, start: int | None) -> None:
        """Adds a variable, or the rows of it that begin at `start`."""
        place = ""
        if start is not None:
            rest = "".join(":-" for _ in variable.shape[1:])
            shape = " ".join(map(str, variable.shape))
            place = f"{shape} {start},{len(value)}{rest}"
        if self._bytes and self._bytes + value.nbytes > CHUNK_BYTES:
            self._flush()
        self._waiting.append((variable, value, place))
        self._bytes += value.nbytes

    def _flush(self) -> None:
        prefix = f"{self._folder}/{len(self._prefixes)}"
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            feeds = {
                tf.compat.v1.placeholder(variable.dtype): value
                for variable, value, _ in self._waiting
            }
            save = tf.raw_ops.SaveV2(
                prefix=prefix,
                tensor_names=[variable.name for variable, _, _ in self._waiting],
                shape_and_slices=[place for _, _, place in self._waiting],
                tensors=list(feeds),
            )
            session.run(save, feeds)
        self._prefixes.append(prefix)
        self._waiting, self._bytes = [], 0

    def __exit__(self, error: Any, *_: Any) -> None:
        try:
            if error is None:
                self._finish()
        finally:
            tf.io.gfile.rmtree(self._folder)

    def _finish(self) -> None:
        self._flush()
        merged = f"{self._folder}/merged"
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            session.run(
                tf.raw_ops.MergeV2Checkpoints(
                    checkpoint_prefixes=self._prefixes,
                    destination_prefix=merged,
                    delete_old_dirs=False,
                )
            )
        # The index comes last: without it, the checkpoint does not exist.
        files = tf.io.gfile.glob(f"{merged}.*")
        for file in sorted(files, key=lambda name: name.endswith(".index")):
            tf.io.gfile.rename(file, self._destination + file.removeprefix(merged))
        folder = self._destination.rpartition("/")[0] or "."
        if not tf.io.gfile.exists(f"{folder}/checkpoint"):
            with tf.io.gfile.GFile(f"{folder}/checkpoint", "w") as file:
                name = self._destination.rpartition("/")[2]
                file.write(f"model_checkpoint_path: {json.dumps(name)}\n")


def _prefix(path: str) -> str:
    if tf.io.gfile.isdir(path):
        latest: str | None = tf.train.latest_checkpoint(path)
        if latest is None:
            raise ValueError(f"Folder {path!r} holds no checkpoint.")
        return latest
    if not tf.io.gfile.exists(f"{path}.index"):
        raise ValueError(f"There is no checkpoint {path!r}.")
    return path


def _new_path(source: str, destination: str) -> str:
    if destination.endswith("/") or tf.io.gfile.isdir(destination):
        destination = f"{destination.rstrip('/')}/{source.rpartition('/')[2]}"
    if tf.io.gfile.exists(f"{destination}.index"):
        raise ValueError(f"Checkpoint {destination!r} exists already.")
    return destination


def _flat(variables: list[SavedVariable]) -> Iterator[SavedVariable]:
    for variable in variables:
        for name in (variable.name, *variable.slots):
            yield SavedVariable(name, variable.shape, variable.dtype)


def _permuted(variables: dict[str, SavedVariable], tables: list[str]) -> set[str]:
    shapes = {name: variable.shape for name, variable in variables.items()}
    permuted = set()
    for table in tables:
        if table not in shapes:
            matrices = sorted(name for name, shape in shapes.items() if len(shape) == 2)
            raise ValueError(
                f"convert: table {table!r} is not in the checkpoint, whose matrices are {matrices}."
            )
        if len(shapes[table]) != 2:
            raise ValueError(
                f"convert: table {table!r} must have shape [vocabulary_size, dimension]; it has "
                f"{list(shapes[table])}."
            )
        permuted |= {table, *_slots(table, shapes)}
    if not permuted:
        raise ValueError("convert: no table is named.")
    return permuted


def _is_helper(name: str) -> bool:
    return any(part.startswith(HELPER_PREFIX) for part in name.split("/"))
