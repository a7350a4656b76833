"""Runs the cores of an emulated TPU: an executor is copies of them in one graph, or PJRT devices.

An `Executor` belongs to a backend, and begins an `Execution` for the graph of each mode.
"""

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from estimator_emb.backends.emulated import topology
from estimator_emb.backends.emulated.computation import Computation
from estimator_emb.catalog.slices import Slice
from estimator_emb.engine.cores import Cores
from estimator_emb.engine.engine import LiveTables
from estimator_emb.engine.kernels import Factory
from estimator_emb.guards.guard import Runs
from estimator_emb.reporting.text_columns import counted
from estimator_emb.spec import options

CreateTables = Callable[[Any], LiveTables | None]
"""Creates the tables of a graph once; takes the value of model_fn."""


class Execution(Protocol):
    """How the cores run the step of one mode.

    Attributes:
      load: the op that runs before each loop of steps, or None.
      kernels: what trains the tables where the execution does; None for those of the host.
    """

    load: tf.Operation | None
    kernels: Factory | None

    def running(self) -> contextlib.AbstractContextManager[Any]:
        """Makes a context in which model_fn builds the step of core 0."""

    def on_cores(
        self, wanted: dict[str, Any], spec: Any, create_tables: CreateTables
    ) -> tuple[dict[str, Any], Any]:
        """Returns each core's tensors for those of `wanted`, and model_fn's spec for a session.

        An execution that trains the tables itself creates them here.
        """

    def whole_step(self, train_op: Any, updates: list[tf.Operation]) -> tf.Operation:
        """Returns the op of a step and of the updates of its tables."""

    def last_step(self, step: tf.Operation) -> tf.Operation:
        """Returns the op of the step after which the session's hooks see the variables."""

    def session_hooks(self) -> list[Any]:
        """Returns the hooks that a session needs for its devices."""


class Executor(Protocol):
    """The cores of an emulated TPU.

    Attributes:
      runs: who runs the model.
      takes_out: whether core 0's step is taken out of the graph, and not copied.
      agreement: what several hosts agree on, each a process; None if this process is all of them.
    """

    runs: Runs
    takes_out: bool
    agreement: Any

    def shape(self, tpu_config: Any, has_tables: bool) -> Slice:
        """Returns the shape of the TPU that a `TPUConfig` asks for."""

    def says(self, cores: int, hosts: int) -> str:
        """Returns what the log says of it."""

    def begin(self, cores: Cores, computation: Computation, mode: str) -> Execution:
        """Begins the graph of a mode."""


class CoreCopies:
    """Copies of core 0's step for the other cores, in the graph of one session."""

    runs = Runs.EMULATED
    takes_out = False
    agreement = None

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

    def says(self, cores: int, hosts: int) -> str:
        over = f" on {hosts} hosts" if hosts > 1 else ""
        return f"A TPU is emulated on the host, with {counted(cores, 'core')}{over}."

    def begin(self, cores: Cores, computation: Computation, mode: str) -> Execution:
        return _CopiedStep(cores)


class _CopiedStep:
    load: tf.Operation | None = None
    kernels: Factory | None = None

    def __init__(self, cores: Cores):
        self._cores = cores

    def running(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def on_cores(
        self, wanted: dict[str, Any], spec: Any, create_tables: CreateTables
    ) -> tuple[dict[str, Any], Any]:
        of_cores = self._cores.replicate(tf.nest.flatten(wanted))
        return tf.nest.pack_sequence_as(wanted, of_cores), spec

    def whole_step(self, train_op: Any, updates: list[tf.Operation]) -> tf.Operation:
        return tf.group(train_op, *updates)

    def last_step(self, step: tf.Operation) -> tf.Operation:
        return step

    def session_hooks(self) -> list[Any]:
        return []
