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

from estimator_emb.backends.hosts import initial_rows
from estimator_emb.compat.internals.graphs import eager_mode
from estimator_emb.engine.alone import Alone, Read
from estimator_emb.guards import numbers, stopping
from estimator_emb.reporting import console
from estimator_emb.reporting.console import logger

_train = tf.compat.v1.train
_OF_CHIEF = (
    _train.CheckpointSaverHook,
    _train.LoggingTensorHook,
    _train.ProfilerHook,
    _train.StepCounterHook,
    _train.SummarySaverHook,
)
"""Hooks of a program that only the chief runs."""


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


class Agreement(Alone):
    """Connects this host with the other hosts of a training, `joining.Hosts`."""

    def __init__(self, hosts: Any):
        self._hosts = hosts
        self.number, self.count = hosts.number, hosts.count
        self.is_chief = self.number == 0
        self._part: _PartOfHost | None = None
        self._training = self._save_failed = self._is_away = False
        self._over: HostError | None = None
        self._signal = 0
        """Number of the signal that ends the training on all hosts, or 0."""

    def own(self, of_all: Any) -> Any:
        each = len(of_all) // self.count
        return of_all[self.number * each : (self.number + 1) * each]

    def quiet(self, config: Any) -> Any:
        if self.is_chief:
            return config
        console.silence()
        return config.replace(
            save_checkpoints_steps=None,
            save_checkpoints_secs=None,
            save_summary_steps=None,
            log_step_count_steps=None,
        )

    def without_chief_hooks(self, spec: Any, hooks: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        if self.is_chief:
            return spec, hooks
        names = ("training_hooks", "training_chief_hooks")
        spec = spec._replace(**{name: tuple(_kept(getattr(spec, name))) for name in names})
        return spec, _kept(hooks)

    @contextlib.contextmanager
    def training(self, model_dir: str) -> Iterator[None]:
        self._training, self._over, self._signal = True, None, 0
        try:
            with self._told(), initial_rows.warm_start_parts():
                self.same("model_dir", zlib.crc32(model_dir.encode()))
                try:
                    yield
                except (KeyboardInterrupt, SystemExit):
                    if self._signal:
                        self._end()
                    raise
                self._end()
        finally:
            self._training, self._part = False, None
            self.runs(lambda: None)

    def _end(self) -> None:
        """Waits until all hosts have ended the training, and takes part in the last save."""
        while any(row[0] != State.DONE for row in self._meet(State.DONE)):
            pass

    def shared(self, call: Callable[[], Any]) -> Any:
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
        rows = self._meet(State.BUILD, digest & 0x7FFFFFFF)
        other = next((n for n, row in enumerate(rows) if row[2] != rows[0][2]), None)
        if other is not None:
            raise ValueError(
                f"{what} on {self._hosts.names[other]} is another than on {self._hosts.names[0]}: "
                "give all hosts the same program, arguments, environment and versions."
            )

    def runs(self, running: Callable[[], Any]) -> None:
        self._hosts.running = running

    def before_load(self) -> None:
        self._meet(State.LOAD)

    def from_chief(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        return list(self._hosts.from_chief(values))

    def batch_of_chief(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        def exchange(*values: np.ndarray) -> list[np.ndarray]:
            if any(row[0] == State.DONE for row in self._meet(State.LOAD)):
                raise StopIteration
            return self.from_chief(values)

        made = tf.numpy_function(exchange, tensors, [one.dtype for one in tensors])
        for one, like in zip(made, tensors, strict=True):
            one.set_shape(like.shape)
        return list(made)

    def shared_bytes(self, own: bytes) -> bytes:
        return bytes(self._hosts.tell(own)[0])

    def before_step(self, sizes: Sequence[int], capacities: Sequence[int]) -> Sequence[int]:
        exceeds = any(size > most for size, most in zip(sizes, capacities, strict=True))
        rows = self._meet(State.STEP, int(exceeds))
        if any(row[0] == State.DONE for row in rows):
            raise StopIteration
        self._signal = self._signal or int(rows[:, 1].max())
        if self._signal:
            stopping.agree(self._signal)
        return self._hosts.numbers(sizes).max(0).tolist() if rows[:, 2].any() else sizes

    def before_fetch(self) -> None:
        self._meet(State.FETCH)
        self._hosts.tell(b"")

    def takes_part(self, live: Any, step: Any, initial: Read, savers: Sequence[Any]) -> None:
        if savers:
            raise ValueError(
                f"The program makes a Saver, and none can save tables that {self.count} hosts "
                "share: leave it out of Scaffold, hooks and the collection 'savers', or train on "
                "one host."
            )
        if not self.is_chief:
            self._part = _PartOfHost(live, step, initial, self.number)

    def with_parts(self, saved: tf.Tensor) -> tf.Tensor:
        if not self.is_chief:
            return saved
        (merge,) = [one for one in saved.op.control_inputs if one.type == "MergeV2Checkpoints"]
        given, path = merge.inputs
        with tf.control_dependencies(merge.control_inputs):
            others = tf.numpy_function(self._parts_of_others, [path], tf.string)
            merged = tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=tf.concat([given, others], 0),
                destination_prefix=path,
                delete_old_dirs=True,
            )
        with tf.control_dependencies([merged]):
            return tf.identity(path)

    def _parts_of_others(self, path: bytes) -> np.ndarray:
        """Makes the other hosts write their parts of a checkpoint. Returns the parts' paths."""
        self._meet(State.WRITE)
        self._hosts.tell(path)
        self._meet(State.WRITTEN)
        return np.array([_path_of(path, number) for number in range(1, self.count)], object)

    def rows_between(self, own: Any) -> Any:
        from estimator_emb.backends.hosts.exchange import Exchange

        return Exchange(self._hosts.devices)

    def check_divides(self, table: Any) -> None:
        rows = table.config.vocabulary_size
        if rows < self.count:
            raise ValueError(
                f"Table {table.name!r} has {rows} rows, fewer than the {self.count} hosts that "
                f"share it: give it a vocabulary_size of at least {self.count}, or train on fewer "
                "hosts."
            )
        if table.optimizer is not None and table.optimizer.slot_variable_creation_fn is not None:
            raise ValueError(
                f"Table {table.name!r}: slot_variable_creation_fn of "
                f"{type(table.optimizer).__name__} creates slots for the whole table, but "
                f"{self.count} hosts share the table. Leave it out, or train on one host."
            )

    def rows_of(self, whole: tf.Tensor, start: int, end: int) -> tf.Tensor:
        return initial_rows.rows_of(whole, start, end)

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
                    self._meet(State.FAILED, text=text)
                if self.is_chief and str(self._over or ""):
                    logger.error("%s", self._over)
            raise

    def _meet(self, state: State, number: int = 0, text: str = "") -> np.ndarray:
        while True:
            if state is State.FAILED:
                number = int(self._save_failed)
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
            if self._part is not None:
                try:
                    self._part.serve(chief, path)
                except Exception:
                    self._save_failed = True
                    if state is not State.FAILED:  # Else the first error says more.
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


class _PartOfHost:
    """Writes the parts of tables that a host other than the chief saves in a checkpoint."""

    def __init__(self, live: Any, step: Any, initial: Read, number: int):
        self._number = number
        self._tables = {one.name: one for one in live.tables}
        self._step = step
        self._initial = initial
        self._values: dict[tuple[str, int], np.ndarray] = {}
        self._lines: list[str] = []

    def serve(self, state: State, path: bytes) -> None:
        """Takes part in a save by the chief."""
        if state is State.FETCH:
            self._values, self._lines = {}, []
            self._step.fetch_tables(self._keep)
            if self._lines:
                begin = "NaN or infinity in the model, which is not saved:"
                raise ValueError("\n  ".join([begin, *self._lines]))
        elif state is State.WRITE:
            self._write(_path_of(path, self._number))
        else:
            self._values = {}

    def _keep(self, number: int, rows: Iterator[tuple[str, np.ndarray]]) -> None:
        for name, values in rows:
            self._values[name, number] = values
            self._lines += self._bad_lines(self._tables[name], number, values)

    def _bad_lines(self, table: Any, number: int, values: np.ndarray) -> Iterator[str]:
        variable = table.all_variables[number]
        return numbers.lines_of_weights([table], [variable], lambda one: values)

    def _write(self, path: bytes) -> None:
        names, slices, values = [], [], []
        most = max(len(table.all_variables) for table in self._tables.values())
        for number in range(most):
            tables = [one for one in self._tables.values() if number < len(one.all_variables)]
            held = [self._values.get((table.name, number)) for table in tables]
            if held[0] is None:  # Nothing has trained.
                held = list(self._initial([table.name for table in tables], number))
            values += held
            for table in tables:
                part = table.all_variables[number]._get_save_slice_info()
                names.append(part.full_name)
                slices.append(part.spec)
        with eager_mode():
            tf.raw_ops.SaveV2(
                prefix=path, tensor_names=names, shape_and_slices=slices, tensors=values
            )


def _path_of(path: bytes, host: int) -> bytes:
    """Returns the path of a host's part, in TensorFlow's folder for the parts of a save."""
    return path + b"_temp/host_%d" % host


def _kept(hooks: Sequence[Any]) -> list[Any]:
    return [one for one in hooks if not isinstance(one, _OF_CHIEF)]


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
