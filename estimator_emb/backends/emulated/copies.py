"""Runs the cores of an emulated TPU as copies in a graph, and declares the executor interface.

PJRT devices implement the same interface. An `Executor` belongs to a backend, and begins an
`Execution` for the graph of each mode.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

from estimator_emb.backends import host_tables
from estimator_emb.backends.emulated import topology
from estimator_emb.backends.emulated.computation import Computation
from estimator_emb.catalog.slices import Slice
from estimator_emb.engine.alone import ALONE, Alone
from estimator_emb.engine.cores import Cores
from estimator_emb.engine.engine import PendingLookup, TablePlace
from estimator_emb.guards.call import Runs
from estimator_emb.reporting.text_columns import counted
from estimator_emb.spec import options


class Execution(Protocol):
    """Runs a mode's step on the cores.

    Attributes:
      load: an optional op to run before each loop of steps.
      place: where the tables are.
    """

    load: tf.Operation | None
    place: TablePlace

    def running(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context in which model_fn builds core 0's step."""

    def on_cores(
        self, wanted: dict[str, Any], spec: Any, pending: PendingLookup | None
    ) -> tuple[dict[str, Any], Any]:
        """Returns `wanted` with each tensor replaced by all cores' tensors, and a session's spec.

        The spec is model_fn's `spec`, with tensors that a session can run. An execution that trains
        the tables in its step creates them here.
        """

    def whole_step(self, ops: Sequence[Any]) -> tf.Operation:
        """Returns an op that runs a step: its `train_op`, and the update of its tables if any."""

    def last_step(self, step: tf.Operation) -> tf.Operation:
        """Returns the op for a loop's last step, after which hooks see the new variables."""

    def session_hooks(self, savers: Sequence[Any]) -> list[Any]:
        """Returns session hooks that the devices need. `savers` are the program's own."""


class Executor(Protocol):
    """Runs the cores of an emulated TPU.

    Attributes:
      runs: where the model runs.
      takes_out: True if core 0's step is taken out of the graph instead of copied.
      host: the host that this process is.
    """

    runs: Runs
    takes_out: bool
    host: Alone

    def shape(self, tpu_config: Any, has_tables: bool) -> Slice:
        """Returns the shape of the TPU that a `TPUConfig` requests."""

    def prepare_session(self, config: tf.compat.v1.ConfigProto) -> None:
        """Changes the configuration of the sessions, after `shape`."""

    def says(self, cores: int, hosts: int) -> str:
        """Returns a line for the log that describes the cores."""

    def begin(self, cores: Cores, computation: Computation, mode: str) -> Execution:
        """Starts an `Execution` in the graph of a mode."""


class CoreCopies:
    """Runs all cores in a single graph by copying core 0's step for every other core."""

    runs = Runs.EMULATED
    takes_out = False
    host = ALONE

    def shape(self, tpu_config: Any, has_tables: bool) -> Slice:
        shape = topology.emulated_slice(tpu_config)
        each = tpu_config.num_cores_per_replica or 1
        if has_tables and shape.hosts > 1 and each > 1:
            raise options.CannotEmulate(
                "TPUConfig: num_cores_per_replica with embedding tables on several hosts cannot be "
                f"emulated; got {each} and {shape.hosts} hosts. Emulate one host, or give each "
                "replica one core."
            )
        return shape

    def prepare_session(self, config: tf.compat.v1.ConfigProto) -> None:
        """Leaves the configuration as it is."""

    def says(self, cores: int, hosts: int) -> str:
        over = f" on {hosts} hosts" if hosts > 1 else ""
        return f"A TPU is emulated on the host, with {counted(cores, 'core')}{over}."

    def begin(self, cores: Cores, computation: Computation, mode: str) -> Execution:
        return _CopiedStep(cores)


class _CopiedStep:
    load: tf.Operation | None = None

    def __init__(self, cores: Cores):
        self._cores = cores
        self.place = TablePlace(host_tables.kernels_for, on_tpu=True)

    def running(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def on_cores(
        self, wanted: dict[str, Any], spec: Any, pending: PendingLookup | None
    ) -> tuple[dict[str, Any], Any]:
        of_cores = self._cores.replicate(tf.nest.flatten(wanted))
        return tf.nest.pack_sequence_as(wanted, of_cores), spec

    def whole_step(self, ops: Sequence[Any]) -> tf.Operation:
        return tf.group(*ops)

    def last_step(self, step: tf.Operation) -> tf.Operation:
        return step

    def session_hooks(self, savers: Sequence[Any]) -> list[Any]:
        return []
