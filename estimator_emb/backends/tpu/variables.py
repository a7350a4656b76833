"""Creates a table's variables on the hosts of a TPU, and the ops that load and retrieve them.

The hardware holds the tables during training. The hosts hold variables under each table's legacy
name. Variables are loaded into the hardware before the first step, and retrieved after every
training loop. A variable has one part per host, with the table's rows in id order.

Source: `create_variables_and_ops` of tensorflow/python/tpu/tpu_embedding.py, TF 2.15.1.
"""

import collections
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.graphs import colocate_with
from estimator_emb.engine.tables.partition import Partition
from estimator_emb.optimizers import PARAMETERS, OptimizationParameters


def _slot_tuples(suffix: str) -> dict[type[OptimizationParameters], Any]:
    return {
        optimizer: collections.namedtuple(  # type: ignore[misc]
            optimizer.__name__.removesuffix("Parameters") + suffix,
            [slot.legacy_name or slot.name for slot in optimizer.slots],
        )
        for optimizer in PARAMETERS
        if optimizer.slots
    }


SLOT_VARIABLES = _slot_tuples("SlotVariables")
SLOT_VARIABLE_NAMES = _slot_tuples("SlotVariableNames")
"""Optimizer with slots -> legacy namedtuple of its slot variables, or of their names."""


def slot_tuple(optimizer: OptimizationParameters, values: Sequence[Any]) -> Any:
    """Returns slot values as the optimizer's `...SlotVariables`, or None if it has no slots."""
    for legacy, of_slots in SLOT_VARIABLES.items():
        if isinstance(optimizer, legacy):
            return of_slots(*values)
    return None


def device_of_part(hosts: Sequence[str]) -> Callable[[Any], str]:
    """Returns a device function that places each part of a table on the host in the part's name."""

    def device(operation: Any) -> str:
        found = re.findall(r"/part_(\d+)(?=/|$)", operation.name) or re.findall(
            r"dummy_(\d+)_", operation.name
        )
        if not found:
            raise RuntimeError(
                f"Op {operation.name!r} was created among the parts of an embedding table, but its "
                "name does not say which part; an initializer must create ops under the current "
                "name scope only."
            )
        return hosts[int(found[-1])]

    return device


def create_parts(
    name: str, partition: Partition, dimension: int, initializer: Callable[..., Any]
) -> list[tf.Variable]:
    """Creates a variable [rows of the host, dimension] on each host.

    A table may have fewer rows than hosts. Each host without a row then gets a row of padding.
    The padding is a local variable named `dummy_<host>_<name>`, and is not saved in checkpoints.
    """
    rows, hosts = partition.vocabulary_size, partition.shards
    parts = list(
        tf.compat.v1.get_variable(
            name,
            shape=[rows, dimension],
            dtype=tf.float32,
            initializer=initializer,
            partitioner=tf.compat.v1.fixed_size_partitioner(min(rows, hosts)),
            collections=[tf.compat.v1.GraphKeys.GLOBAL_VARIABLES],
            trainable=False,
        )
    )
    for host in range(rows, hosts):
        parts.append(
            tf.compat.v1.get_variable(
                f"dummy_{host}_{name}",
                shape=[1, dimension],
                dtype=tf.float32,
                initializer=initializer,
                collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
                trainable=False,
            )
        )
    return parts


def load_ops(
    table: str,
    optimizer: OptimizationParameters,
    variables: Sequence[Sequence[tf.Variable]],
    partition: Partition,
    config: bytes,
) -> list[tf.Operation]:
    """Returns ops, one per host, that copy a table and its slots to the hardware.

    `variables` are the parts of the table, then the parts of each slot in the optimizer's order.
    The first host's op carries `config`, the serialized configuration of the hardware. `config` is
    b'' if another table's op carries the configuration.
    """
    load = getattr(tf.raw_ops, f"LoadTPUEmbedding{optimizer.hardware.name}Parameters")
    names = ["parameters", *(slot.name for slot in optimizer.slots)]
    operations = []
    for host in range(partition.shards):
        with colocate_with(variables[0][host]):
            values = {
                name: _shard(parts, partition, host)
                for name, parts in zip(names, variables, strict=True)
            }
            operations.append(load(**values, **_place(table, partition, host, config)))
    return operations


def retrieve_ops(
    table: str,
    optimizer: OptimizationParameters,
    variables: Sequence[Sequence[tf.Variable]],
    partition: Partition,
    config: bytes,
) -> list[tf.Operation]:
    """Returns ops that copy a table and its slots back to the hosts. Arguments as in `load_ops`."""
    retrieve = getattr(tf.raw_ops, f"RetrieveTPUEmbedding{optimizer.hardware.name}Parameters")
    retrieved = []
    for host in range(partition.shards):
        with colocate_with(variables[0][host]):
            values = retrieve(**_place(table, partition, host, config))
        retrieved.append([values] if tf.is_tensor(values) else list(values))
    operations = []
    for host in range(partition.shards):
        with colocate_with(variables[0][host]):
            assigned = [
                tf.compat.v1.assign(parts[host], _part(shards, partition, host))
                for parts, shards in zip(variables, zip(*retrieved, strict=True), strict=True)
            ]
            operations.append(tf.group(*assigned))
    return operations


def _place(table: str, partition: Partition, host: int, config: bytes) -> dict[str, Any]:
    return {
        "table_name": table,
        "num_shards": partition.shards,
        "shard_id": host,
        "config": b"" if host else config,
    }


def _same(partition: Partition) -> bool:
    """Returns whether each host's part already has the rows that the hardware stores there."""
    one_at_most = partition.vocabulary_size <= partition.shards
    return partition.strategy == "div" or partition.shards == 1 or one_at_most


def _shard(parts: Sequence[Any], partition: Partition, host: int) -> Any:
    if _same(partition):
        return parts[host]
    rows = []
    for part, start in zip(parts, partition.starts, strict=True):
        with colocate_with(part):
            first = (host - start) % partition.shards
            rows.append(tf.convert_to_tensor(part)[first :: partition.shards])
    return tf.concat(rows, axis=0)


def _part(shards: Sequence[tf.Tensor], partition: Partition, host: int) -> tf.Tensor:
    if _same(partition):
        return shards[host]
    start, size = partition.starts[host], partition.sizes[host]
    places, rows = [], []
    for other, shard in enumerate(shards):
        first = (other - start) % partition.shards
        count = len(range(first, size, partition.shards))
        if not count:
            continue
        begin = (start + first) // partition.shards
        with colocate_with(shard):
            rows.append(shard[begin : begin + count])
        places.append(tf.range(first, size, partition.shards))
    return tf.dynamic_stitch(places, rows)
