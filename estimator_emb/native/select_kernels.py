"""Chooses native kernels or TensorFlow's ops to look up and update the tables of a step."""

import logging
from collections.abc import Sequence

import tensorflow as tf

from estimator_emb.catalog import environment
from estimator_emb.engine.kernels import Kernels, TensorFlowKernels
from estimator_emb.engine.pipelining import LookaheadBuffer
from estimator_emb.engine.tables.storage import StoredTable
from estimator_emb.native import build, cache, ops, serving
from estimator_emb.native.native_kernels import NativeKernels
from estimator_emb.native.sharded import ShardedKernels
from estimator_emb.reporting import console
from estimator_emb.reporting.console import logger
from estimator_emb.spec.tf_config import SERVER_JOB


class CannotUse(Exception):
    """Raised if tables cannot use native kernels. The message gives the reason in one line."""


def kernels_for(
    tables: Sequence[StoredTable],
    num_cores: int,
    next_step: LookaheadBuffer | None,
    servers: Sequence[str] = (),
) -> Kernels:
    """Returns native kernels if all tables of a step can use them, else TensorFlow's ops.

    In training, it logs why native kernels cannot be used.
    """
    trained = [table for table in tables if table.optimizer is not None]
    try:
        if environment.NATIVE.choice() == "0":
            raise CannotUse(f"{environment.NATIVE} is 0; unset it to enable them")
        tasks = _tasks(tables, servers)
        library = ops.load()
        rules = [library.rule(table.trained_by, table.clipping_limit) for table in trained]
        if not tasks and all(len(table.variables) == 1 for table in tables):
            return NativeKernels(library, tables, rules, num_cores, next_step)
        for table in trained if num_cores > 1 else ():
            if not table.trained_by.use_gradient_accumulation:
                raise CannotUse(
                    f"table {table.name} is in shards, and its optimizer does not accumulate the "
                    "gradients of several cores; set use_gradient_accumulation=True"
                )
        if found := serving.obstacle(library, servers, tasks, [rule.name for rule in rules]):
            raise CannotUse(found)
        if trained and tasks:
            logger.info(
                "Tables are looked up and updated on their parameter servers, by native kernels."
            )
        return ShardedKernels(library, tables, rules, next_step)
    except (CannotUse, build.BuildError) as reason:
        text = f"Tables use TensorFlow's ops, without native kernels: {reason}."
        if trained:
            unsafe = isinstance(reason, cache.UnsafeError)
            console.say_once(text, level=logging.WARNING if unsafe else logging.INFO)
        else:
            logger.debug(text)
        return TensorFlowKernels(tables, num_cores, next_step)


def _tasks(tables: Sequence[StoredTable], servers: Sequence[str]) -> list[int]:
    seen = set()
    tasks: set[int] = set()
    for table in tables:
        for shard in table.variables:
            for variable in (shard.weights, *shard.slots):
                device = tf.DeviceSpec.from_string(variable.handle.device or "")
                if device.job not in (None, "localhost"):
                    if device.job != SERVER_JOB or (device.task or 0) >= len(servers):
                        raise CannotUse(f"table {table.name} is on {variable.handle.device}")
                    tasks.add(device.task or 0)
                if device.device_type not in (None, "CPU"):
                    raise CannotUse(
                        f"the program places table {table.name} on {variable.handle.device}; "
                        "leave it on the CPU, the default, to use them"
                    )
                if variable.handle.device != shard.weights.handle.device:
                    raise CannotUse(
                        f"a slot of table {table.name} is on another device than its rows"
                    )
                if variable.handle.ref() in seen:
                    raise CannotUse(f"variable {variable.name} belongs to two tables or slots")
                seen.add(variable.handle.ref())
        if table.config.vocabulary_size >= 2**31:
            raise CannotUse(
                f"table {table.name} has 2^31 rows or more; divide it into smaller tables to use "
                "them"
            )
    return sorted(tasks)
