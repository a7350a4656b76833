# SPDX-License-Identifier: Apache-2.0
"""The variables of a table: its weights and its optimizer's slots, under their legacy names."""

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.compat.internals.graphs import PartitionInfo
from estimator_emb.config import TableConfig
from estimator_emb.optimizers import OptimizationParameters
from estimator_emb.spec import Table
from estimator_emb.tables.partition import Partition


@dataclasses.dataclass(frozen=True)
class TableVariables:
    """The variables of one shard of a table, all float32 [rows of the shard, dimension].

    Attributes:
      weights: the rows.
      slots: the optimizer's slots of these rows, in the optimizer's order.
    """

    weights: tf.Variable
    slots: tuple[tf.Variable, ...]

    @property
    def shared(self) -> bool:
        """Whether other processes may write the rows during a step: on a parameter server."""
        return tf.DeviceSpec.from_string(self.weights.device).job is not None

    @contextlib.contextmanager
    def device(self) -> Iterator[None]:
        """Where the shard's rows are worked on: beside them, if the graph places them anywhere."""
        if not self.weights.device:
            yield
            return
        # Past the function that deals variables out to the parameter servers in turn.
        with tf.device(None), tf.device(self.weights.device):
            yield


Shards = Sequence[TableVariables]
"""A table: shard i holds the i-th run of consecutive ids, of the sizes that `Partition` gives."""


@dataclasses.dataclass(frozen=True)
class StoredTable:
    """A table and where its values are.

    Attributes:
      table: what was asked for.
      variables: its weights and slots.
      optimizer: what trains it; None where nothing is updated.
    """

    table: Table
    variables: Shards
    optimizer: OptimizationParameters | None

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name

    @property
    def config(self) -> TableConfig:
        """The table's configuration."""
        return self.table.config

    @property
    def all_variables(self) -> list[tf.Variable]:
        """The weights and the slots, of all shards."""
        return [variable for shard in self.variables for variable in (shard.weights, *shard.slots)]

    @property
    def trained_by(self) -> OptimizationParameters:
        """The optimizer, where there must be one."""
        assert self.optimizer is not None
        return self.optimizer


def create(
    table: Table,
    name: str,
    parameters: OptimizationParameters | None,
    as_part: bool,
    shards: int = 1,
) -> Shards:
    """Creates the variables of a table in the graph's global variables.

    Shards hold consecutive ids under either partition strategy: on the host the strategy could
    only change where a row lies, and in this order the shards of a checkpoint, which TensorFlow
    writes as slices of one tensor, are the table in the order of its ids. So a checkpoint does not
    depend on the strategy or the number of shards, and restores under any other.

    Args:
      table: the table.
      name: name of the weights; slots append their suffix to it.
      parameters: the optimizer; None creates no slots.
      as_part: True names the variables of an undivided table `<name>/part_0`, as a program on a TPU
        finds them in its graph. Those of several shards are `<name>/part_<i>` always. The
        checkpoint calls them `<name>` either way. Slots that the optimizer's
        `slot_variable_creation_fn` creates have the names that it gives them.
      shards: into how many parts the table is divided. A table of fewer rows has as many as rows;
        one with slots that the program creates has one.

    Raises:
      ValueError: `slot_variable_creation_fn` returns something else than a variable of the table's
        shape and dtype for each slot.
    """
    own_slots = parameters is not None and parameters.slot_variable_creation_fn is not None
    shards = 1 if own_slots else min(shards, table.config.vocabulary_size)
    partition = Partition(table.config.vocabulary_size, shards)
    # A scope of our own: what the program has set on its scopes, say a partitioner, stays there.
    # No variable is handed out a second time in it.
    with tf.compat.v1.variable_scope(tf.compat.v1.VariableScope(reuse=False)):
        created = tuple(
            _shard(table, name, parameters, _Place(partition, i, as_part)) for i in range(shards)
        )
    if parameters is not None:
        for shard in created:
            for variable in (shard.weights, *shard.slots):
                _save_in_place(variable)
    return created


@dataclasses.dataclass(frozen=True)
class _Place:
    partition: Partition
    shard: int
    as_part: bool

    @property
    def rows(self) -> int:
        return self.partition.sizes[self.shard]

    @property
    def start(self) -> int:
        return self.partition.starts[self.shard]

    @property
    def divided(self) -> bool:
        return self.partition.shards > 1


def _shard(
    table: Table, name: str, parameters: OptimizationParameters | None, place: _Place
) -> TableVariables:
    # Warm starting by pattern looks among the trainable variables. By now the program's optimizer
    # has made its list of them, so it leaves the table alone.
    initializer = _of_shard(_unfolded(table.config.initializer), table, place)
    weights = _variable(table, name, initializer, place, trainable=True)
    shard = TableVariables(weights, ())
    if parameters is None:
        return shard
    if parameters.slot_variable_creation_fn:
        return TableVariables(weights, _slots_of_program(table, weights, parameters))
    with shard.device():
        slots = tuple(
            _variable(
                table,
                name + slot.suffix,
                constant(parameters.initial_value(slot)),
                place,
                trainable=False,
            )
            for slot in parameters.slots
        )
    return TableVariables(weights, slots)


def read(shards: Shards, rows: tf.Tensor) -> tf.Tensor:
    """float32 [n, dimension]: the weights of `rows`, int32 or int64 [n]."""
    if len(shards) == 1:
        return read_rows(shards[0].weights, rows)
    places, parts = [], []
    for shard, (positions, local) in zip(shards, by_shard(shards, rows), strict=True):
        with shard.device():
            parts.append(read_rows(shard.weights, local))
        places.append(positions)
    values = tf.dynamic_stitch(places, parts)
    return tf.ensure_shape(values, [None, shards[0].weights.shape[1]])


def by_shard(shards: Shards, rows: tf.Tensor) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """For each shard, which of `rows` it holds (int32 positions in `rows`) and where (its rows)."""
    sizes = [shard.weights.shape[0] for shard in shards]
    ends = np.cumsum(sizes)
    owner = tf.searchsorted(tf.constant(ends, rows.dtype), rows, side="right")
    local = rows - tf.gather(tf.constant(ends - sizes, rows.dtype), owner)
    count = len(shards)
    positions = tf.dynamic_partition(tf.range(tf.size(rows)), owner, count)
    return list(zip(positions, tf.dynamic_partition(local, owner, count), strict=True))


def read_rows(variable: tf.Variable, rows: tf.Tensor) -> tf.Tensor:
    """float32 [n, dimension]: `rows`, int32 or int64 [n], of the weights or of a slot."""
    # Half the time of sparse_read, and what Grappler turns into a copy of the table is sparse_read.
    return variable.gather_nd(tf.expand_dims(rows, 1))


def _slots_of_program(
    table: Table, weights: tf.Variable, parameters: OptimizationParameters
) -> tuple[tf.Variable, ...]:
    """The slots that `slot_variable_creation_fn` creates, in the optimizer's order."""
    assert parameters.slot_variable_creation_fn
    names = [slot.name for slot in parameters.slots]
    created = parameters.slot_variable_creation_fn(
        weights, names, [constant(parameters.initial_value(slot)) for slot in parameters.slots]
    )
    owner = f"Table {table.name!r}: slot_variable_creation_fn of {type(parameters).__name__}"
    if not isinstance(created, Mapping) or set(created) != set(names):
        found = f"the keys {list(created)}" if isinstance(created, Mapping) else repr(created)
        raise ValueError(
            f"{owner} must return a dict of variables with the keys {names}; got {found}."
        )
    for name in names:
        variable = created[name]
        if not isinstance(variable, tf.Variable) or not hasattr(variable, "handle"):
            raise ValueError(
                f"{owner} must return a resource variable (use_resource=True) for slot {name!r}; "
                f"got {variable!r}."
            )
        if variable.shape != weights.shape or variable.dtype != weights.dtype:
            raise ValueError(
                f"{owner} must return a variable of the table's shape {weights.shape} and dtype "
                f"{weights.dtype.name} for slot {name!r}; got shape {variable.shape} and dtype "
                f"{variable.dtype.name}."
            )
    return tuple(created[name] for name in names)


def _variable(
    table: Table, name: str, initializer: Callable[..., Any], place: _Place, trainable: bool
) -> tf.Variable:
    part = place.as_part or place.divided
    dimension = table.config.dimension
    variable = tf.compat.v1.get_variable(
        f"{name}/part_{place.shard}" if part else name,
        shape=[place.rows, dimension],
        dtype=tf.float32,
        initializer=initializer,
        trainable=trainable,
        use_resource=True,
    )
    # An op of another name: one of the program has this name. A checkpoint tells none of it.
    if part or variable.op.name != name:
        variable._set_save_slice_info(
            tf.Variable.SaveSliceInfo(
                full_name=name,
                full_shape=[table.config.vocabulary_size, dimension],
                var_offset=[place.start, 0],
                var_shape=[place.rows, dimension],
            )
        )
    return variable


def _of_shard(
    initializer: Callable[..., Any], table: Table, place: _Place
) -> Callable[..., tf.Tensor]:
    """`initializer` for the rows of one shard.

    Initializers that take `partition_info` get it, as they did from TensorFlow's partitioned
    variables. Of one that gives the whole table, the shard takes its rows. One of a fixed seed is
    given another in each shard: the rows of all shards would be equal.
    """
    if not place.divided:
        return initializer
    whole = [table.config.vocabulary_size, table.config.dimension]
    arguments: dict[str, Any] = {}
    if "partition_info" in inspect.signature(initializer).parameters:
        arguments["partition_info"] = PartitionInfo(whole, [place.start, 0])
    elif isinstance(initializer, tf.keras.initializers.Initializer):
        arguments["partition_shape"] = (place.rows, whole[1])
        arguments["partition_offset"] = (place.start, 0)
    config: dict[str, Any] = getattr(initializer, "get_config", dict)()
    if config.get("seed") is not None:
        config["seed"] += place.shard
        initializer = type(initializer).from_config(config)  # type: ignore[attr-defined]

    def of_shard(shape: Any, dtype: tf.DType = tf.float32, **_: Any) -> tf.Tensor:
        if "value" in config and np.shape(config["value"]) == tuple(whole):
            return tf.constant(config["value"][place.start : place.start + place.rows], dtype)
        value = tf.convert_to_tensor(initializer(shape, dtype=dtype, **arguments))
        if value.shape == whole:
            return value[place.start : place.start + place.rows]
        return value

    return of_shard


def _save_in_place(variable: tf.Variable) -> None:
    """Lets savers, and fetches of the variable itself, read its buffer in place of a copy.

    The first sparse update puts a variable into a mode in which every read copies it. This read
    ends that mode; the next update begins it again, and copies only if someone still reads.
    """
    with tf.name_scope(f"{variable.op.name}/in_place/"), tf.device(variable.device):
        shared = tf.raw_ops.DisableCopyOnRead(resource=variable.handle)
        with tf.control_dependencies([shared]):
            variable._graph_element = tf.raw_ops.ReadVariableOp(
                resource=variable.handle, dtype=variable.dtype
            )


def saved_name(variable: tf.Variable) -> str:
    """What a checkpoint calls a variable, or the whole of which it is a part."""
    part = variable._get_save_slice_info()
    return part.full_name if part else variable.op.name


def names_of(name: str, parameters: OptimizationParameters | None) -> list[str]:
    """What `create` calls the weights and slots; without those that the program creates itself."""
    if parameters is None or parameters.slot_variable_creation_fn:
        return [name]
    return [name, *(name + slot.suffix for slot in parameters.slots)]


def local_variable(name: str, initial: tf.Tensor) -> tf.Variable:
    """A variable of this process alone, which no checkpoint holds; its first size may change."""
    # Beside the ops of this worker: on a parameter server, where variables go, workers would share
    # it.
    with tf.device(tf.constant(False).device):
        return tf.compat.v1.Variable(
            initial,
            name=name,
            trainable=False,
            collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
            validate_shape=False,
            shape=tf.TensorShape([None, *initial.shape[1:]]) if initial.shape.rank else None,
            use_resource=True,
        )


def constant(value: float) -> Callable[..., tf.Tensor]:
    """An initializer that fills with `value`.

    A constant of the shape of a table would be computed once, when the graph is optimized or its
    executor made, and stay in memory beside the variable. What follows from a random number is
    never computed then; this one is always 0.
    """

    def initializer(shape: Any, dtype: tf.DType = tf.float32, **_: Any) -> tf.Tensor:
        zero = tf.raw_ops.RandomUniformInt(
            shape=tf.constant([], tf.int32), minval=0, maxval=1, seed=1, seed2=1
        )
        return tf.fill(shape, tf.constant(value, dtype) + tf.cast(zero, dtype))

    return initializer


def _unfolded(initializer: Callable[..., Any]) -> Callable[..., Any]:
    """`initializer`, or its equal that is not folded, where it fills with one number."""
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
