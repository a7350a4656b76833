# SPDX-License-Identifier: Apache-2.0
"""Which native kernels serve which tables of a step."""

import logging
import os
from collections.abc import Sequence

import tensorflow as tf

from estimator_emb import console
from estimator_emb.native import build, ops, serving
from estimator_emb.native.kernels import NativeKernels
from estimator_emb.native.sharded import ShardedKernels
from estimator_emb.step.transfer import Transfer
from estimator_emb.tables.storage import StoredTable, TableVariables

logger = logging.getLogger("estimator_emb")


_MOST_ROWS = 2**31 - 1
"""Of a table that the kernels can serve."""


class CannotUse(Exception):
    """Why the kernels serve no table of a step, in one line."""


def kernels_for(
    tables: Sequence[StoredTable],
    clipping_limit: float | None,
    num_cores: int,
    transfer: Transfer | None,
    servers: Sequence[str] = (),
) -> tuple[NativeKernels | ShardedKernels | None, Sequence[StoredTable]]:
    """Returns kernels for tables, or None, and the tables that they do not serve.

    Why they do not serve a table, or none, training says in the log.

    Args:
      tables: all tables of the step.
      clipping_limit: of the spec.
      num_cores: as of `NativeKernels`.
      transfer: as of `NativeKernels`.
      servers: host:port of each parameter server.
    """
    training = any(table.optimizer is not None for table in tables)
    try:
        if os.environ.get("ESTIMATOR_EMB_NATIVE") == "0":
            raise CannotUse("ESTIMATOR_EMB_NATIVE is 0; unset it to have them")
        _check_apart(tables)
        reasons = {table.name: _obstacle(table, num_cores, servers) for table in tables}
        served = [table for table in tables if reasons[table.name] is None]
        library = ops.load()
        for name, reason in reasons.items():
            if reason is not None:
                text = f"Table {name} uses TensorFlow's ops, without native kernels: {reason}."
                _say(text, training)
        if not served:
            return None, tables
        rest = [table for table in tables if reasons[table.name] is not None]
        rules = [
            library.rule(table.optimizer, clipping_limit)
            for table in served
            if table.optimizer is not None
        ]
        tasks = sorted({task for table in served for task in _tasks(table)})
        if not tasks and all(len(table.variables) == 1 for table in served):
            return NativeKernels(library, served, rules, num_cores, transfer), rest
        if found := serving.obstacle(library, servers, tasks, [rule.name for rule in rules]):
            raise CannotUse(found)
        if training and tasks:
            logger.info(
                "Tables are looked up and updated on their parameter servers, by native kernels."
            )
        return ShardedKernels(library, served, rules, transfer), rest
    except (CannotUse, build.BuildError) as reason:
        _say(f"Tables use TensorFlow's ops, without native kernels: {reason}.", training)
        return None, tables


def _say(text: str, training: bool) -> None:
    if training:
        console.say_once(text)
    else:
        logger.debug(text)


def _check_apart(tables: Sequence[StoredTable]) -> None:
    """Raises `CannotUse` if a variable is one of several tables, or several things of one."""
    seen = set()
    for table in tables:
        for variable in table.all_variables:
            if variable.handle.ref() in seen:
                raise CannotUse(f"variable {variable.name} serves twice")
            seen.add(variable.handle.ref())


def _obstacle(table: StoredTable, num_cores: int, servers: Sequence[str]) -> str | None:
    """Returns why the kernels cannot serve a table, and what to do; None if they can."""
    if table.config.vocabulary_size > _MOST_ROWS:
        return f"it has more than {_MOST_ROWS:,} rows; divide it into smaller tables to have them"
    for shard in table.variables:
        place = shard.weights.handle.device
        for variable in shard.slots:
            if variable.handle.device != place:
                return f"its slot {variable.name} is not where its rows are"
        device = _device(shard)
        if device.job not in (None, "localhost", serving.JOB) or (
            device.job == serving.JOB and (device.task or 0) >= len(servers)
        ):
            return f"it is on {place}, which is no parameter server"
        if device.device_type not in (None, "CPU"):
            return (
                f"the program places it on {place}; without a device of its own it would be on the "
                "CPU, and have them"
            )
    divided = len(table.variables) > 1 or _tasks(table)
    apart = table.optimizer is not None and not table.optimizer.use_gradient_accumulation
    if num_cores > 1 and divided and apart:
        return (
            "it is in shards, and its optimizer does not accumulate the gradients of several "
            "cores; use_gradient_accumulation=True does"
        )
    return None


def _device(shard: TableVariables) -> tf.DeviceSpec:
    return tf.DeviceSpec.from_string(shard.weights.handle.device or "")


def _tasks(table: StoredTable) -> set[int]:
    """Returns the parameter servers that hold something of a table."""
    devices = [_device(shard) for shard in table.variables]
    return {device.task or 0 for device in devices if device.job == serving.JOB}
