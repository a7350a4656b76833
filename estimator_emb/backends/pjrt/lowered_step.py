"""Builds the graph of a mode of a program that runs its model on PJRT devices.

Input, lookups, updates of tables, host_call and metrics work as on an emulated TPU. But the graph
has no copies of model_fn's step. Instead, a single op passes the batch of all cores to the devices.
The model's variables stay on the devices during a loop of steps. The ops that model_fn made do not
run.
"""

import contextlib
import functools
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.backends import host_tables
from estimator_emb.backends.emulated.computation import Computation
from estimator_emb.backends.pjrt.tables_on_devices import (
    HostCopy,
    KernelsOnDevices,
    TablesOnDevices,
)
from estimator_emb.backends.xla import core_step, draws
from estimator_emb.backends.xla.host_rows import RowsOfProcess
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.compat.internals.graphs import control_flow_util, gen_random_ops
from estimator_emb.compat.internals.patches import Changes
from estimator_emb.engine.alone import Alone
from estimator_emb.engine.cores import Cores
from estimator_emb.engine.engine import LiveTables, PendingLookup, TablePlace, in_update
from estimator_emb.engine.ordering import reads_before_writes, structure

_KERAS = "tf_keras.src.utils.control_flow_util"
"""Keras's counterpart of TensorFlow's `control_flow_util`."""
_LOSS = "loss of the step"
_building = threading.RLock()
"""Held while model_fn builds its step, because changes to TensorFlow affect all threads."""


class StepOnDevices:
    """The step of a mode (training, evaluation, ...), on a PJRT device per core."""

    def __init__(
        self,
        devices: Sequence[Any],
        cores: Cores,
        computation: Computation,
        mode: str,
        keeps_tables: bool,
        host: Alone,
    ):
        self.load: tf.Operation | None = None
        self.place = TablePlace(host_tables.kernels_for, on_tpu=True)
        if keeps_tables:
            words = "in the memory of the devices"
            self.place = TablePlace(KernelsOnDevices, True, host=host, on_tpu=True, words=words)
        self._live: LiveTables | None = None
        self._devices = devices
        self._cores = cores
        self._computation = computation
        self._mode = mode
        self._host = host
        # All hosts must build the same step.
        self._random = random.Random(host.shared_bytes(os.urandom(8)))
        self._number = 0
        """Number of the next step, for random seeds. It is at least the global step."""
        self._seed: tf.Tensor | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with _building, _as_xla_wants(self._seed_of_core, self._random):
            yield

    def _seed_of_core(self) -> tf.Tensor:
        if self._seed is None:
            own = self._cores.own
            with tf.init_scope():  # Loops, branches and functions of the program capture it.
                seeds = lambda: draws.seeds_of_cores(self._number, own)  # noqa: E731
                each = _host_op("seeds", seeds, [], [tf.int32] * len(own))[1]
                self._seed = self._cores.per_core([tf.ensure_shape(one, [2]) for one in each])
        return self._seed

    def on_cores(
        self, wanted: dict[str, Any], spec: Any, pending: PendingLookup | None
    ) -> tuple[dict[str, Any], Any]:
        rest = {name: tensors for name, tensors in wanted.items() if name != "gradients"}
        if getattr(spec, "loss", None) is not None:
            rest[_LOSS] = spec.loss
        # Results that the tables need come first. Others are fetched only if they are read.
        gradients = wanted.get("gradients", {})
        first, others = tf.nest.flatten(gradients), tf.nest.flatten(rest)
        self._live = pending.create_tables(spec) if pending and self.place.in_step else None
        factors = self._factors_of(self._live, gradients) if self._live else []
        self._factors = len(factors)
        training = self._mode == ModeKeys.TRAIN
        train_op = getattr(spec.train_op, "op", spec.train_op) if training else None
        targets = [*first, *factors, *others]
        # Reads go before writes, while the ops are still in the session's graph.
        reads_before_writes.order([*targets, *([] if train_op is None else [train_op])])
        step, lowered = self._lowered(targets, factors, train_op)
        tables = None
        if self._live:
            reached, host = sorted(gradients), self._host
            tables = TablesOnDevices(self._live, step, reached, factors, self._devices, host)
        self._take_to_devices(step, lowered, tables)
        with tf.name_scope("pjrt"), tf.control_dependencies(None):
            if tables:
                self._launch_with_tables(step, tables)
                values = {}
            else:
                values = tf.nest.pack_sequence_as(gradients, self._launched(step, first))
            with tf.control_dependencies([self._launch]):
                numbers = range(len(targets) - len(others), len(targets))
                results = self._results(step, numbers)
            others = tf.nest.pack_sequence_as(rest, results)
        if training:
            spec = spec._replace(train_op=self._launch)
        if _LOSS in others:
            spec = spec._replace(loss=others.pop(_LOSS)[0])
        return {**others, "gradients": values}, spec

    def _factors_of(self, live: LiveTables, gradients: Any) -> list[tf.Tensor]:
        """Returns the learning rate of each table, then the optional gradient multiplier."""
        with in_update(), core_step.control_flow_v2():
            rates, multiplier = live.rates_of_step(gradients)
        return [*rates, *([] if multiplier is None else [multiplier])]

    def _lowered(
        self, targets: Sequence[tf.Tensor], factors: Sequence[tf.Tensor], train_op: Any
    ) -> tuple[core_step.CoreStep, bytes]:
        """Returns core 0's step and its serialized XLA module.

        The host computes the `factors` if XLA cannot compute them, or would ignore their checks.
        """
        has, cores = self._computation.has, self._cores
        lower = functools.partial(core_step.lower_core, cores, targets, train_op, has)
        ops = structure.leading_to([one.op for one in factors], {})
        host_can = bool(factors) and not any(one.op in ops for one in cores.inputs.values())
        if not core_step.needs_host(factors, has):
            step = lower()
            try:
                return step, step.lowered()
            except core_step.CannotLower:
                if not host_can:
                    raise
        elif not host_can:
            raise ValueError(
                "A learning rate of a table, or the gradient multiplier, is computed from a "
                "feature, with an assert or another op that only the host runs: leave one of them "
                "out, or choose tables='host'."
            )
        step = lower(factors)
        return step, step.lowered()

    def _take_to_devices(
        self, step: core_step.CoreStep, lowered: bytes, tables: TablesOnDevices | None
    ) -> None:
        from estimator_emb.backends.xla.devices import DeviceStep

        of_tables = tables.of_step if tables else None
        host = self._host
        rows = host.rows_between(RowsOfProcess())
        try:
            on_devices = DeviceStep(lowered, len(step.arguments), self._devices, of_tables, rows)
        except RuntimeError as error:  # XLA rejects the step on these devices.
            raise core_step.CannotLower(core_step.explained(str(error))) from error
        host.same("The step that model_fn makes", on_devices.digest)
        if tables:
            host.same("The training of the tables", tables.digest)
        host.runs(on_devices.running)
        self._on_devices = on_devices
        self._handles = [(op.outputs[0], op.get_attr("dtype")) for op in step.variables]

        def load(*values: Any) -> None:
            if not on_devices.is_loaded:
                host.before_load()
                values = tuple(host.from_chief(values))
            global_step, *of_variables = values
            self._number = max(self._number, int(global_step))
            on_devices.load(*of_variables)

        with tf.name_scope("pjrt"), tf.control_dependencies(None):
            values = [
                tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
                for handle, dtype in self._handles
            ]
            global_step = tf.compat.v1.train.get_global_step().read_value()
            self.load = _host_op("load", load, [global_step, *values], [])[0]

    def _launched(self, step: core_step.CoreStep, first: Sequence[tf.Tensor]) -> list[Any]:
        """Creates the op of a step. Returns all cores' values of the results `first`."""
        count, each = self._cores.count, len(self._cores.own)
        given = [self._cores.on_each_core(tensor) for tensor in step.arguments]
        self._read_by_host = counter = self._step_counter() if first else []

        def launch(*values: Any) -> list[Any]:
            self._host.before_step([], [])
            self._on_devices.launch(
                [values[start : start + each] for start in range(0, len(values), each)],
                copies=not first,
            )
            self._number += 1
            results = self._on_devices.results(range(len(first)))
            return [*results, *self._on_devices.variables(counter)]

        dtypes = [tensor.dtype for tensor in first for _ in range(count)]
        dtypes += [self._handles[index][1] for index in counter]
        self._launch, outputs = _host_op("step", launch, tf.nest.flatten(given), dtypes)
        self._new_values = outputs[count * len(first) :]
        return self._shaped(outputs, first)

    def _launch_with_tables(self, step: core_step.CoreStep, tables: TablesOnDevices) -> None:
        """Creates the op of a step that also looks up and trains tables on the devices."""
        others = [
            tensor
            for number, tensor in enumerate(step.arguments)
            if number not in tables.of_step.activations
        ]
        inputs = [[self._cores.on_each_core(one) for one in others], tables.inputs()]
        # If the host computes a rate, it waits for each step. Otherwise it runs ahead.
        read = self._read_by_host = self._read_for(others)

        def launch(*values: Any) -> list[Any]:
            given, ids = tf.nest.pack_sequence_as(inputs, values)
            self._on_devices.launch(given, copies=True, ids=tables.padded(ids))
            self._number += 1
            return list(self._on_devices.variables(read))

        dtypes = [self._handles[index][1] for index in read]
        self._launch, self._new_values = _host_op("step", launch, tf.nest.flatten(inputs), dtypes)

    def _results(self, step: core_step.CoreStep, numbers: Sequence[int]) -> list[Any]:
        tensors = [step.results[number] for number in numbers]
        dtypes = [tensor.dtype for tensor in tensors for _ in range(self._cores.count)]
        outputs = _host_op("results", lambda: self._on_devices.results(numbers), [], dtypes)[1]
        return self._shaped(outputs, tensors)

    def _shaped(self, outputs: list[tf.Tensor], like: Sequence[tf.Tensor]) -> list[Any]:
        """Groups outputs by core for each tensor of `like`, and sets that tensor's static shape."""
        count = self._cores.count
        of_cores = [outputs[count * n : count * (n + 1)] for n in range(len(like))]
        for tensor, values in zip(like, of_cores, strict=True):
            for value in values:
                value.set_shape(tensor.shape)
        return of_cores

    def _step_counter(self) -> list[int]:
        """Returns the index of the global step in a list, empty if the step does not write it."""
        global_step = tf.compat.v1.train.get_global_step()
        return [n for n in self._on_devices.written if self._handles[n][0] is global_step.handle]

    def _read_for(self, tensors: Sequence[tf.Tensor]) -> list[int]:
        """Returns indices of the written variables that the host reads to compute `tensors`."""
        ops = structure.leading_to([one.op for one in tensors], {})
        return [n for n in self._on_devices.written if self._handles[n][0].op in ops]

    def _checked_factors(self, live: LiveTables) -> list[tf.Tensor]:
        """Returns tensors that fail if a step had a bad learning rate or gradient multiplier."""
        on_devices, count = self._on_devices, len(live.tables)
        dtypes = [tf.float32] * self._factors
        seen = _host_op("factors", lambda: list(on_devices.factors()), [], dtypes)[1]
        for one in seen:
            one.set_shape([])
        return live.check_rates(seen[:count], *(seen[count:] or [None]))

    def _written_back(self) -> tf.Operation:
        """Returns an op that copies values from the devices to the session's variables."""
        checked = self._checked_factors(self._live) if self._live else []
        with tf.control_dependencies(checked):
            return self._fetched()

    def _fetched(self) -> tf.Operation:
        on_devices, written = self._on_devices, self._on_devices.written

        def fetch() -> list[Any]:
            values = on_devices.variables(written)
            on_devices.is_ahead = False
            return values

        handles = [self._handles[number] for number in written]
        values = _host_op("fetch", fetch, [], [dtype for _, dtype in handles])[1]
        return tf.group(
            *(_assign(handle, value) for (handle, _), value in zip(handles, values, strict=True))
        )

    def whole_step(self, ops: Sequence[Any]) -> tf.Operation:
        # The next step's learning rates read the global step, and may read other variables.
        with tf.control_dependencies(ops):
            return tf.group(
                *(
                    _assign(self._handles[number][0], value)
                    for number, value in zip(self._read_by_host, self._new_values, strict=True)
                )
            )

    def last_step(self, step: tf.Operation) -> tf.Operation:
        with tf.control_dependencies([step]):
            return self._written_back()

    def session_hooks(self, savers: Sequence[Any]) -> list[Any]:
        if self._mode != ModeKeys.TRAIN:
            return [_LoadHook(self.load)]
        with tf.name_scope("pjrt"), tf.control_dependencies(None):  # Each loop begins with a load.
            flushes = _FlushHook(self._on_devices, self._written_back())
            if self._live is None:
                return [flushes]
            return [flushes, HostCopy(self._live, self._on_devices, savers, self._host)]


class _LoadHook(tf.compat.v1.train.SessionRunHook):
    def __init__(self, load: tf.Operation | None):
        self._load = load

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        session.run(self._load)


class _FlushHook(tf.compat.v1.train.SessionRunHook):
    """Copies variables back from the devices if a loop of steps was cut short."""

    def __init__(self, on_devices: Any, flush: tf.Operation):
        self._on_devices = on_devices
        self._flush = flush

    def end(self, session: tf.compat.v1.Session) -> None:
        if self._on_devices.is_ahead:
            session.run(self._flush)


def described(devices: Sequence[Any], hosts: int = 1) -> str:
    """Describes devices in words, such as '8 PJRT devices: cpu:0 to cpu:7'."""
    if hosts > 1:  # The ids of a host's devices may begin at any number.
        return f"{len(devices)} PJRT devices ({devices[0].platform}) of {hosts} hosts"
    if len(devices) == 1:
        return f"a PJRT device: {devices[0]}"
    return f"{len(devices)} PJRT devices: {devices[0]} to {devices[-1]}"


@contextlib.contextmanager
def _as_xla_wants(
    seed_of_core: Callable[[], tf.Tensor], generator: random.Random
) -> Iterator[None]:
    """Builds this thread's loops and branches as functions, and its random ops as stateless ops."""
    thread = threading.get_ident()

    def only_here(make: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
        ours = make(original)
        return lambda *args, **kwargs: (ours if threading.get_ident() == thread else original)(
            *args, **kwargs
        )

    with core_step.control_flow_v2(), Changes() as changes:
        in_xla = functools.partial(only_here, lambda original: lambda graph: True)
        for module in filter(None, (control_flow_util, sys.modules.get(_KERAS))):
            changes.wrap(module, "GraphOrParentsInXlaContext", in_xla)
        for name in draws.STATELESS:
            make = functools.partial(draws.stateless, name, seed_of_core, generator)
            changes.wrap(gen_random_ops, name, functools.partial(only_here, make))
        yield


def _host_op(
    name: str, function: Callable[..., Any], inputs: Sequence[Any], dtypes: Sequence[Any]
) -> tuple[tf.Operation, list[tf.Tensor]]:
    """Returns an op that calls `function` with arrays, and the tensors of its results."""
    made = tf.numpy_function(function, inputs, dtypes, name=name)
    if not dtypes:
        return made, []
    outputs = list(made) if isinstance(made, (list, tuple)) else [made]
    return outputs[0].op, outputs


def _assign(handle: tf.Tensor, value: tf.Tensor) -> tf.Operation:
    return tf.raw_ops.AssignVariableOp(resource=handle, value=value)
