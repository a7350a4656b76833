"""The variables of a table: its weights and its optimizer's slots, under their legacy names."""

import contextlib
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.compat.internals.graphs import PartitionInfo
from estimator_emb.engine.alone import ALONE, Alone
from estimator_emb.engine.tables import partition
from estimator_emb.optimizers import OptimizationParameters
from estimator_emb.spec.config import TableConfig
from estimator_emb.spec.resolved import Table

_MUTEX = "estimator_emb_tables"
"""Name of a mutex in each parameter server's process. All trainers' graphs use this mutex.

An optimizer step reads a row, computes, and writes the row. Without a mutex, an update that another
trainer writes in between would be lost. So every step on a server's tables holds the server's
mutex, whether native kernels or TensorFlow's ops compute it.
"""


@dataclasses.dataclass(frozen=True)
class TableVariables:
    """The variables of a table's shard, all float32 [rows of the shard, dimension].

    The slots are in the optimizer's order.
    """

    weights: tf.Variable
    slots: tuple[tf.Variable, ...]

    @property
    def shared(self) -> bool:
        """Whether the rows are on a parameter server, where other trainers may write them."""
        return tf.DeviceSpec.from_string(self.weights.device).job is not None

    @contextlib.contextmanager
    def device(self) -> Iterator[None]:
        if not self.weights.device:
            yield
            return
        # None undoes the device function that places variables on the parameter servers in turn.
        with tf.device(None), tf.device(self.weights.device):
            yield

    def run(
        self, step: Callable[[Sequence[tf.Tensor]], tf.Operation], inputs: Sequence[tf.Tensor]
    ) -> tf.Operation:
        """Runs a step on the device of the variables. On a parameter server, steps run in turn.

        `step` gets copies of `inputs` on that device. Its ops must read everything else there too,
        so that they wait for no other process.
        """
        with self.device():
            if not self.shared:
                return step(inputs)
            with tf.name_scope("exclusive"):
                # Inputs arrive before the mutex is taken, so that a trainer that dies while it
                # sends them blocks no other trainer.
                arrived = [tf.identity(one) for one in inputs]
                mutex = tf.raw_ops.MutexV2(shared_name=_MUTEX)
                with tf.control_dependencies(arrived):
                    lock = tf.raw_ops.MutexLock(mutex=mutex)
                with tf.control_dependencies([lock]):
                    done = step([tf.identity(one) for one in arrived])
                # Consuming the lock frees the mutex after the step. A step that fails also frees
                # it.
                with tf.control_dependencies([done]):
                    return tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)


Shards = Sequence[TableVariables]
"""The shards of one table, in the order of their ids."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredTable(Table):
    """A table with its variables. Its optimizer is None if nothing is updated."""

    variables: Shards

    @property
    def all_variables(self) -> list[tf.Variable]:
        return [variable for shard in self.variables for variable in (shard.weights, *shard.slots)]


def create(
    table: Table,
    name: str,
    name_as_part: bool,
    servers: int = 1,
    rounds: int = 1,
    first_server: int = 0,
    host: Alone = ALONE,
) -> Shards:
    """Creates the variables of a table in the graph's global variables.

    `partition.dealt` divides the rows among `servers` in `rounds`. If TensorFlow places variables
    on servers in turn, the first rows go to the server `first_server` places after the next.

    Shards hold consecutive ids under either partition strategy: on the host, the strategy could
    only change where a row is stored. TensorFlow saves the shards as slices of a single tensor. So
    a checkpoint has the table in id order, whatever the strategy and the number of shards.

    `name` is the name of the weights in checkpoints. Slots append their suffix to it. The variables
    are `<name>/part_<i>` if there are several shards, or with `name_as_part`, as a program on a TPU
    finds them in its graph. Slots that the optimizer's `slot_variable_creation_fn` creates keep
    their names, and have a single shard. Raises ValueError if such a slot does not fit. A table
    without an optimizer gets no slots. No shard is empty. Each of several hosts
    creates only its own of as many even shards. Raises ValueError if they cannot divide the table.
    """
    rows, optimizer = table.config.vocabulary_size, table.optimizer
    own_slots = optimizer is not None and optimizer.slot_variable_creation_fn is not None
    host.check_divides(table)
    if host.count > 1:
        servers, rounds = host.count, 1
    sizes = [rows] if own_slots else partition.dealt(rows, servers, rounds)
    named_as_part = name_as_part or len(sizes) > 1
    shards = [
        _Shard(table, name, number, sum(sizes[:number]), size, rows // servers, named_as_part)
        for number, size in enumerate(sizes)
    ]
    if host.count > 1:
        shards = [dataclasses.replace(shards[host.number], host=host)]
    # A new scope ignores the settings of the program's scopes, such as a partitioner. With
    # reuse=False, no variable is returned a second time.
    with tf.compat.v1.variable_scope(tf.compat.v1.VariableScope(reuse=False)):
        first = -first_server % len(shards)
        in_turn = {shard.number: shard.create() for shard in [*shards[first:], *shards[:first]]}
    return tuple(in_turn[shard.number] for shard in shards)


_OF_SHAPE = (tf.keras.initializers.VarianceScaling, tf.compat.v1.orthogonal_initializer)
"""Initializers with values that depend on the requested shape."""


@dataclasses.dataclass(frozen=True)
class _Shard:
    """Rows [start, start + rows) of a table. In checkpoints, its weights are called `name`."""

    table: Table
    name: str
    number: int
    start: int
    rows: int
    rows_of_server: int
    named_as_part: bool
    host: Alone = ALONE

    def create(self) -> TableVariables:
        # Trainable, because warm starting by pattern looks among the trainable variables. The
        # program's optimizer has listed its variables by now, and leaves the table alone.
        weights = self._variable("", self._initializer(), trainable=True)
        shard, parameters = TableVariables(weights, ()), self.table.optimizer
        if parameters is None:
            return shard
        if parameters.slot_variable_creation_fn:
            return TableVariables(weights, _slots_of_program(self.table, weights, parameters))
        with shard.device():
            slots = tuple(
                self._variable(slot.suffix, constant(parameters.initial_value(slot)))
                for slot in parameters.slots
            )
        return TableVariables(weights, slots)

    def _variable(
        self, suffix: str, initializer: Callable[..., Any], trainable: bool = False
    ) -> tf.Variable:
        name, config = self.name + suffix, self.table.config
        variable = tf.compat.v1.get_variable(
            f"{name}/part_{self.number}" if self.named_as_part else name,
            shape=[self.rows, config.dimension],
            dtype=tf.float32,
            initializer=initializer,
            trainable=trainable,
            use_resource=True,
        )
        # The op's name differs if the program has an op of this name. Checkpoints use `name`.
        if self.named_as_part or variable.op.name != name:
            variable._set_save_slice_info(
                tf.Variable.SaveSliceInfo(
                    full_name=name,
                    full_shape=[config.vocabulary_size, config.dimension],
                    var_offset=[self.start, 0],
                    var_shape=[self.rows, config.dimension],
                )
            )
        return variable

    def _initializer(self) -> Callable[..., tf.Tensor]:
        """Returns an initializer for the rows of this shard, made from the table's initializer.

        Initializers that take `partition_info` get it, as they did from TensorFlow's partitioned
        variables. If an initializer returns the whole table, the shard takes its rows. A fixed seed
        changes with each shard, because the rows of all shards would otherwise be equal. The part
        of a host has the rows of the whole table's initial value.
        """
        initializer = _unfolded(self.table.config.initializer)
        start, end = self.start, self.start + self.rows
        whole = [self.table.config.vocabulary_size, self.table.config.dimension]
        if self.rows == whole[0]:
            return initializer
        arguments: dict[str, Any] = {}
        asked = [self.rows, whole[1]]
        knows_place = "partition_info" in inspect.signature(initializer).parameters
        if self.host.count > 1:

            def initialize_part(shape: Any, dtype: tf.DType = tf.float32, **_: Any) -> tf.Tensor:
                given = {"partition_info": None} if knows_place else {}
                value = tf.convert_to_tensor(initializer(whole, dtype=dtype, **given))
                if value.shape != whole:
                    value = tf.ensure_shape(value, whole)
                return self.host.rows_of(value, start, end)

            return initialize_part
        if knows_place:
            arguments["partition_info"] = PartitionInfo(whole, [start, 0])
        if isinstance(initializer, _OF_SHAPE) or not (
            knows_place or hasattr(initializer, "get_config")
        ):
            # Its values may depend on the shape, so it must not see a slice of only a few rows.
            asked[0] = max(self.rows, self.rows_of_server)
        if isinstance(initializer, tf.keras.initializers.Initializer):
            arguments["partition_shape"] = tuple(asked)
            arguments["partition_offset"] = (start, 0)
        config: dict[str, Any] = getattr(initializer, "get_config", dict)()
        if config.get("seed") is not None:
            config["seed"] += self.number
            initializer = type(initializer).from_config(config)  # type: ignore[attr-defined]

        def initialize_shard(shape: Any, dtype: tf.DType = tf.float32, **_: Any) -> tf.Tensor:
            if "value" in config and np.shape(config["value"]) == tuple(whole):
                return tf.constant(config["value"][start:end], dtype)
            value = tf.convert_to_tensor(initializer(asked, dtype=dtype, **arguments))
            if value.shape == whole:
                return value[start:end]
            return value[: self.rows] if asked[0] > self.rows else value

        return initialize_shard


def read_table(shards: Shards, rows: tf.Tensor) -> tf.Tensor:
    """Returns the weights of `rows`, int32 or int64 [n], as float32 [n, dimension]."""
    if len(shards) == 1:
        return read_rows(shards[0].weights, rows)
    places, parts = [], []
    for shard, (positions, local) in zip(shards, by_shard(shards, rows), strict=True):
        with shard.device():
            parts.append(read_rows(shard.weights, local))
        places.append(positions)
    return tf.dynamic_stitch(places, parts)


def by_shard(shards: Shards, rows: tf.Tensor) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Returns for each shard (int32 positions of its rows in `rows`, rows within the shard)."""
    sizes = [shard.weights.shape[0] for shard in shards]
    ends = np.cumsum(sizes)
    owner = tf.searchsorted(tf.constant(ends, rows.dtype), rows, side="right")
    local = rows - tf.gather(tf.constant(ends - sizes, rows.dtype), owner)
    count = len(shards)
    positions = tf.dynamic_partition(tf.range(tf.size(rows)), owner, count)
    return list(zip(positions, tf.dynamic_partition(local, owner, count), strict=True))


def read_rows(variable: tf.Variable, rows: tf.Tensor) -> tf.Tensor:
    """Returns `rows`, int32 or int64 [n], of weights or a slot as float32 [n, dimension]."""
    # Not sparse_read: it takes twice as long, and Grappler may turn it into a copy of the table.
    return variable.gather_nd(tf.expand_dims(rows, 1))


def _slots_of_program(
    table: Table, weights: tf.Variable, parameters: OptimizationParameters
) -> tuple[tf.Variable, ...]:
    assert parameters.slot_variable_creation_fn
    names = [slot.name for slot in parameters.slots]
    created = parameters.slot_variable_creation_fn(
        weights, names, [constant(parameters.initial_value(slot)) for slot in parameters.slots]
    )
    owner = f"Table {table.name!r}: slot_variable_creation_fn of {type(parameters).__name__}"
    if not isinstance(created, Mapping) or set(created) != set(names):
        got = f"the keys {list(created)}" if isinstance(created, Mapping) else repr(created)
        raise ValueError(
            f"{owner} must return a dict of variables with the keys {names}; got {got}."
        )
    for name in names:
        variable = created[name]
        same = (weights.shape, weights.dtype)
        # A reference variable has another dtype: float32_ref.
        if not isinstance(variable, tf.Variable) or (variable.shape, variable.dtype) != same:
            raise ValueError(
                f"{owner} must return a resource variable (use_resource=True) of the table's shape "
                f"{weights.shape} and dtype {weights.dtype.name} for slot {name!r}; got "
                f"{variable!r}."
            )
    return tuple(created[name] for name in names)


def save_in_place(tables: Iterable[StoredTable]) -> None:
    """Lets savers, and fetches of a variable itself, read the buffers of tables without a copy.

    The first sparse update puts a variable into a mode in which every read copies it. The ops
    created here end that mode before such a read. The next update starts the mode again, and copies
    the variable only if something still reads it.
    """
    for table in tables:
        for variable in table.all_variables:
            read = variable._graph_element.op
            with tf.name_scope(f"{variable.op.name}/in_place/"), tf.device(variable.device):
                read._add_control_inputs([tf.raw_ops.DisableCopyOnRead(resource=variable.handle)])


def saved_name(variable: tf.Variable) -> str:
    """Returns the name of a variable in checkpoints. A shard has the name of its whole table."""
    part = variable._get_save_slice_info()
    return part.full_name if part else variable.op.name


def names_of(name: str, parameters: OptimizationParameters | None) -> list[str]:
    """Returns the names that `create` gives weights and slots, except slots of the program."""
    if parameters is None or parameters.slot_variable_creation_fn:
        return [name]
    return [name, *(name + slot.suffix for slot in parameters.slots)]


def constant(value: float) -> Callable[..., tf.Tensor]:
    """Returns an initializer that fills a variable with `value`.

    While TensorFlow prepares the graph, it would compute a constant as large as the table, and keep
    it in memory beside the variable. It never does so for values that depend on a random number.
    The random number added here, once per graph, is always 0.
    """

    def initializer(shape: Any, dtype: tf.DType = tf.float32, **_: Any) -> tf.Tensor:
        made = tf.compat.v1.get_collection_ref((constant, value, dtype))
        if not made:
            scalar = tf.constant([], tf.int32)
            zero = tf.raw_ops.RandomUniformInt(shape=scalar, minval=0, maxval=1, seed=1)
            made.append(tf.constant(value, dtype) + tf.cast(zero, dtype))
        return tf.fill(shape, made[0])

    return initializer


def _unfolded(initializer: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `initializer`, or `constant` of a number if `initializer` fills with this number."""
    for module in (tf.compat.v1, tf):
        if isinstance(initializer, module.zeros_initializer):
            return constant(0.0)
        if isinstance(initializer, module.ones_initializer):
            return constant(1.0)
        if isinstance(initializer, module.constant_initializer):
            value = initializer.get_config()["value"]
            if isinstance(value, (int, float)):
                return constant(float(value))
    return initializer


class InitialRows:
    """The `backup_initializer` of a `VocabInfo` that gives new words the table's own rows.

    TensorFlow asks a backup_initializer for values, not for rows. If called, this object returns
    values of the table's initializer, shaped as rows. `with_slots` replaces it by the
    `initializer_of` a table, which returns the table's own values at the ids of the new words.
    """

    def __init__(self, table: TableConfig):
        self._table = table

    def __call__(self, shape: Any, dtype: tf.DType = tf.float32) -> tf.Tensor:
        dimension = self._table.dimension
        rows = self._table.initializer([shape[0] // dimension, dimension], dtype=dtype)
        return tf.reshape(rows, shape)

    def initializer_of(self, shards: Shards, info: Any) -> Callable[..., tf.Tensor]:
        """Returns the initializer of a table's new words, called once per shard in graph order."""
        all_variables = [variable.name for variable in tf.compat.v1.global_variables()]
        remaining = iter(sorted(shards, key=lambda one: all_variables.index(one.weights.name)))

        def initializer(shape: Any, dtype: tf.DType = tf.float32) -> tf.Tensor:
            weights = next(remaining).weights
            part = weights._get_save_slice_info()
            old_ids, _ = tf.raw_ops.GenerateVocabRemapping(
                new_vocab_file=info.new_vocab,
                old_vocab_file=info.old_vocab,
                new_vocab_offset=part.var_offset[0] if part else 0,
                num_new_vocab=weights.shape[0],
            )
            new = tf.where(old_ids < 0)[:, 0]
            return tf.reshape(tf.gather(tf.cast(weights.initial_value, dtype), new), shape)

        return initializer


def with_slots(settings: Any, tables: Iterable[StoredTable]) -> Any:
    """Returns `WarmStartSettings` that give slots the `VocabInfo` and old name of their table.

    tensorflow-estimator warm-starts slots if `vars_to_warm_start` is a list of patterns that match
    them. A string matches only tables and other trainable variables. Slots without their own
    VocabInfo move like the rows of the table, and the row of a new word gets the slot's initial
    value. `InitialRows` become the `initializer_of` their table.
    """
    patterns = getattr(settings, "vars_to_warm_start", None)
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
        return settings
    infos = dict(settings.var_name_to_vocab_info or {})
    old_names = dict(settings.var_name_to_prev_var_name or {})
    for stored in tables:
        shards, parameters = stored.variables, stored.trained_by
        table = saved_name(shards[0].weights)
        initial_rows = infos[table].backup_initializer if table in infos else None
        if isinstance(initial_rows, InitialRows):
            own = initial_rows.initializer_of(shards, infos[table])
            infos[table] = infos[table]._replace(backup_initializer=own)
        for slot, variable in zip(parameters.slots, shards[0].slots, strict=True):
            name = saved_name(variable)
            if not any(re.match(pattern, variable.name) for pattern in patterns):
                continue
            if table in infos and name not in infos:
                initial = constant(parameters.initial_value(slot))
                infos[name] = infos[table]._replace(backup_initializer=initial)
            if table in old_names and name == table + slot.suffix:
                old_names.setdefault(name, old_names[table] + slot.suffix)
    return settings._replace(var_name_to_vocab_info=infos, var_name_to_prev_var_name=old_names)
