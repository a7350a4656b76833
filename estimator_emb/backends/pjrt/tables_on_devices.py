"""Tables in the memory of PJRT devices: the inputs of their step, and their copy on the host.

The host's copy is the tables' TensorFlow variables. They are initialized, restored and saved as
usual. The devices load the variables when a session begins. Before each save, the devices' values
are written back to the variables.
"""

import functools
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.backends.xla import core_step
from estimator_emb.checkpoints.restoring import saver
from estimator_emb.engine import bad_input, lookup
from estimator_emb.engine.alone import Alone
from estimator_emb.engine.engine import LiveTables
from estimator_emb.engine.inputs import Batch, Ids, Source
from estimator_emb.engine.ordering import accesses, structure
from estimator_emb.engine.pipelining import LookaheadBuffer
from estimator_emb.engine.tables.storage import StoredTable
from estimator_emb.optimizers import step
from estimator_emb.optimizers._parameters import Math
from estimator_emb.reporting import frames


class KernelsOnDevices:
    """`Kernels` that only check a batch. The step's own op looks up and trains the tables.

    Attributes:
      ids: the valid ids of each feature, by feature key.
    """

    def __init__(
        self, tables: Sequence[StoredTable], num_cores: int, next_step: LookaheadBuffer | None
    ):
        self.checked: tf.Tensor | None = None

    def lookup(self, batch: Batch, used: Sequence[Source]) -> Iterator[tf.Tensor]:
        self.batch = batch
        good, self.checked = bad_input.checked(batch.ids, batch.size)
        self.ids: dict[str, Ids] = {ids.feature.key: ids for ids in good}
        zeros = functools.cache(lambda *shape: tf.zeros(shape))  # Nothing reads them.
        for source in used:
            ids = self.ids[source.feature.key]
            yield zeros(*lookup.activation_shape(ids, source.table.config.dimension))

    def update(self, gradients: Iterator[tf.Tensor], rates: Sequence[tf.Tensor]) -> tf.Operation:
        return tf.no_op()


class TablesOnDevices:
    """The tables of a training, in the memory of the devices that run its step.

    Attributes:
      live: the tables in the session's graph.
      of_step: `devices.TablesOfStep`.
      digest: of the sizes and optimizers of the tables, and of the forms of the features.
    """

    def __init__(
        self,
        live: LiveTables,
        step: core_step.CoreStep,
        reached: Sequence[str],
        factors: Sequence[tf.Tensor],
        devices: Sequence[Any],
        host: Alone,
    ):
        """Describes the tables to the devices of all hosts, `devices`.

        `reached` are the features that a gradient reaches. `factors` are the learning rates and the
        optional multiplier. The first results of `step` are the gradients of `reached`, and then
        the `factors`.
        """
        from estimator_emb.backends.xla import device_tables
        from estimator_emb.backends.xla import devices as on_devices

        self.live, self._host = live, host
        kernels, batch_size = live.kernels, live.step.batch_size
        assert isinstance(kernels, KernelsOnDevices) and batch_size is not None
        self._kernels = kernels
        stand_ins = {of_cores[0].name: key for key, of_cores in live.stand_ins.items()}
        activations = {
            number: stand_ins[tensor.name]
            for number, tensor in enumerate(step.arguments)
            if tensor.name in stand_ins
        }
        features = [
            device_tables.DeviceFeature(one.key, table.name, one.max_sequence_length or 1)
            for table in live.tables
            for one in table.features
        ]
        tables = device_tables.DeviceTables(
            [_described(device_tables, one) for one in live.tables],
            features,
            batch=batch_size * host.count,
            cores=len(devices),
            packs=devices[0].platform == "tpu",
        )
        check_memory(tables.stacks, host.own(devices), len(devices))
        numbers = range(len(reached), len(reached) + len(factors))
        self.of_step = on_devices.TablesOfStep(
            tables, activations, dict(enumerate(reached)), list(numbers)
        )
        forms = [(one.segments is None, one.weights is None) for one in kernels.ids.values()]
        trained = [
            (one.config.vocabulary_size, one.config.combiner, one.trained_by, one.clipping_limit)
            for one in live.tables
        ]
        compared = re.sub(" at 0x[0-9a-f]+", "", repr((features, forms, trained)))
        self.digest = zlib.crc32(compared.encode())
        self._features = features
        self._batch_size = batch_size
        self._capacities = [8 * len(devices) // host.count] * len(features)

    def inputs(self) -> list[dict[str, tf.Tensor]]:
        """Returns the inputs of each feature: the ids of the whole batch, segments and gains."""
        return [self._inputs_of(self._kernels.ids[one.key]) for one in self._features]

    def _inputs_of(self, ids: Ids) -> dict[str, tf.Tensor]:
        gains = lookup.gains(ids, ids.table.config.combiner)
        given = {"ids": ids.ids, "segments": ids.segments, "gains": gains}
        return {name: tensor for name, tensor in given.items() if tensor is not None}

    def padded(self, values: Sequence[dict[str, np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
        """Returns the values of `inputs` by feature, padded to sizes of the compiled program.

        A batch with more ids than ever before doubles the size, and the program is compiled again.
        All hosts meet here before each step, and use the same sizes.
        """
        sizes = [len(of_feature["ids"]) if "segments" in of_feature else 0 for of_feature in values]
        for number, size in enumerate(self._host.before_step(sizes, self._capacities)):
            while self._capacities[number] < size:
                self._capacities[number] *= 2
        features = zip(self._features, values, self._capacities, strict=True)
        return {one.key: self._padded(one, given, size) for one, given, size in features}

    def _padded(
        self, feature: Any, values: dict[str, np.ndarray], size: int
    ) -> dict[str, np.ndarray]:
        made = {
            name: value.astype(np.float32 if name == "gains" else np.int32)
            for name, value in values.items()
        }
        if "segments" not in values:
            return made
        # Segments are numbered over the batch of all hosts.
        made["segments"] += self._host.number * self._batch_size * feature.segments
        more = size - len(values["ids"])
        return {
            name: np.pad(value, (0, more), constant_values=-1 if name == "ids" else 0)
            for name, value in made.items()
        }


def check_memory(stacks: Sequence[Any], own: Sequence[Any], count: int) -> None:
    """Raises MemoryError, before compilation, if tables and slots exceed a device's memory.

    `own` are this host's devices, of `count` on all hosts. CPU devices report no memory.
    """
    needed = sum(stack.bytes for stack in stacks)
    for device in own:
        there = (device.memory_stats() or {}).get("bytes_limit", needed)
        if there < needed:
            tables = [table for stack in stacks for table in stack.tables]
            largest = max(tables, key=lambda one: one.rows * one.dimension * (1 + len(one.initial)))
            raise MemoryError(
                f"TPUConfig: tables='device' needs {needed / 1e6:,.1f} MB of each of "
                f"{count} devices for tables and slots, and {device} has "
                f"{there / 1e6:,.1f} MB. The largest table is {largest.name!r}: {largest.rows:,} "
                f"rows of {largest.dimension}. Take more devices or hosts, make tables smaller, "
                "choose an optimizer with fewer slots, or choose tables='host' on one host."
            )


def _described(device_tables: Any, table: StoredTable) -> Any:
    optimizer = table.trained_by
    return device_tables.DeviceTable(
        table.name,
        table.config.vocabulary_size,
        table.config.dimension,
        functools.partial(_step, optimizer, table.clipping_limit),
        repr(optimizer),
        tuple(optimizer.initial_value(slot) for slot in optimizer.slots),
        optimizer.updates_untouched_rows,
        optimizer.use_gradient_accumulation,
    )


def _step(optimizer: Any, limit: float | None, rate: Any, g: Any, w: Any, slots: Any) -> Any:
    import jax.numpy as jnp

    math = Math(jnp.sqrt, jnp.power, jnp.minimum, jnp.maximum, jnp.sign, jnp.where)
    return step(optimizer, math, rate, g, w, slots, limit)


class HostCopy(tf.compat.v1.train.SessionRunHook):
    """Loads the devices from the tables' variables, and writes the variables before each save.

    The variables hold values only while a session begins and during a save. At other times they are
    freed, and TensorFlow does not find them. A stack is freed as soon as the devices have it.
    """

    def __init__(self, live: LiveTables, step_on_devices: Any, savers: Sequence[Any], host: Alone):
        host.takes_part(live, step_on_devices, self._read, savers)
        self._step = step_on_devices
        self._savers = savers
        self._host = host
        self._is_loaded = self._is_held = False
        self._initial: list[tf.Operation] = []
        self._reads: dict[tuple[str, int], tf.Variable] = {}
        self._writes: dict[tuple[str, int], tuple[tf.Tensor, tf.Operation]] = {}
        self._drops: dict[tuple[str, int], tf.Operation] = {}
        live.fetch = self._fetch
        for table in live.tables:
            for number, variable in enumerate(table.all_variables):
                value = tf.compat.v1.placeholder(tf.float32, variable.shape)
                assign = tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
                self._initial.append(variable.initializer)  # A warm start replaces it.
                self._writes[table.name, number] = value, assign
                self._reads[table.name, number] = variable
                read = variable.graph.as_graph_element(variable)
                with tf.control_dependencies([read]):
                    drop = tf.raw_ops.DestroyResourceOp(resource=variable.handle)
                self._drops[table.name, number] = drop

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        self._check_writes(session.graph)
        self._session = session
        self._is_loaded, self._is_held = False, True

    def _read(self, tables: Sequence[str], number: int) -> Sequence[np.ndarray]:
        values: list[np.ndarray] = self._session.run([self._reads[one, number] for one in tables])
        return values

    def _take(self, tables: Sequence[str], number: int) -> Sequence[np.ndarray]:
        """Frees variables, and returns their memory, or copies of memory that others share."""
        values: list[np.ndarray] = self._session.run(
            [[held[one, number] for one in tables] for held in (self._reads, self._drops)]
        )[0]
        return values

    def before_run(self, run_context: Any) -> None:
        if not self._is_loaded:  # Other hooks have now seen and saved the initial values.
            session = self._session = run_context.session
            self._host.before_load()
            self._step.load_tables(self._take)
            self._is_loaded, self._is_held = True, False
            around = saver.ChecksBeforeSaving(self._fetch, self._savers, self._drop)
            around.after_create_session(session, None)

    def _check_writes(self, graph: tf.Graph) -> None:
        """Raises ValueError if an op of the program writes a table."""
        keys = tf.compat.v1.GraphKeys
        known = {*self._initial, *(assign for _, assign in self._writes.values())}
        with graph.as_default():
            known |= accesses.initial_writes()
        savers = [*self._savers, *graph.get_collection(keys.SAVERS)]
        restores = [graph.get_operation_by_name(one.saver_def.restore_op_name) for one in savers]
        known |= {*structure.leading_to(restores, {})}
        names = {one.op.name: table for (table, _), one in self._reads.items()}
        for variable in accesses.variables_of(graph):
            table = names.get(variable.name)
            other = next((op for op in variable.writes if op not in known), None)
            if table is not None and other is not None:
                raise ValueError(
                    f"TPUConfig: tables='device' trains table {table!r} in the "
                    f"memory of the devices, and {other.name!r} writes its variable "
                    f"{variable.name!r} on the host: choose tables='host'."
                    f"\n{frames.made_by(other)}".rstrip()
                )

    def _fetch(self, session: Any) -> None:
        """Writes the devices' values into the tables' variables, unless these are up to date."""
        if self._is_held and not self._step.tables_are_ahead:
            return

        def write(number: int, rows: Iterator[tuple[str, np.ndarray]]) -> None:
            fed, assigns = {}, []
            for table, values in rows:
                placeholder, assign = self._writes[table, number]
                fed[placeholder] = values
                assigns.append(assign)
            session.run(assigns, fed)

        self._host.before_fetch()
        self._step.fetch_tables(write)
        self._is_held = True

    def _drop(self, session: Any) -> None:
        if self._is_held:
            session.run([*self._drops.values()])
        self._is_held = False
