"""Loads native kernels in parameter servers, and asks servers whether they have them.

A session finds an op only in a process that has loaded it. So a server loads the ops, and the rules
of its tables' optimizers, when its estimator is created. Before a trainer builds a graph that needs
these ops, it asks every server by running an op there.
"""

import socket
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.catalog import environment
from estimator_emb.native import build, ops
from estimator_emb.reporting.console import logger
from estimator_emb.spec.resolved import Table
from estimator_emb.spec.tf_config import SERVER_JOB

_NEXT_LOOK = 0.5
_NEXT_LINE = 30.0


def load(config: Any, tables: Sequence[Table]) -> None:
    """Loads native kernels for the tables on a parameter server, or logs why they are not used."""
    reason = None
    if environment.NATIVE.choice() == "0":
        reason = f"{environment.NATIVE} is 0"
    elif tf.config.list_physical_devices("GPU"):
        reason = "tables may be on its GPU"
    else:
        try:
            library = ops.load()
            for table in tables:
                library.rule(table.trained_by, table.clipping_limit)
        except build.BuildError as error:
            reason = str(error)
    how = f"TensorFlow's ops, without native kernels: {reason}" if reason else "native kernels"
    logger.info("Parameter server %s serves tables by %s.", config.task_id, how)


def obstacle(
    library: ops.Library, servers: Sequence[str], tasks: Sequence[int], rules: Sequence[str]
) -> str | None:
    """Returns the first reason why `tasks` cannot use native kernels. Waits for their servers."""
    for task in tasks:
        found = _ask(library, servers[task], task, rules)
        if found:
            return f"parameter server {task} ({servers[task]}) cannot use them: {found}"
    return None


def _ask(library: ops.Library, address: str, task: int, rules: Sequence[str]) -> str:
    device = f"/job:{SERVER_JOB}/task:{task}"
    # The filter limits this session to the server, so that no other server needs to be up.
    config = tf.compat.v1.ConfigProto(device_filters=[device])
    with tf.Graph().as_default() as graph, tf.device(device):
        answer = library.ops.host_tables_serves(sources=build.sources(), rules=list(rules))
    while True:
        _wait_for(address, task)
        try:
            with tf.compat.v1.Session(f"grpc://{address}", graph=graph, config=config) as session:
                return session.run(answer).decode()
        except tf.errors.UnavailableError:
            time.sleep(_NEXT_LOOK)
        except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
            if "not registered" not in error.message:
                return error.message
            return "it has not loaded them; its log gives the reason"


def _wait_for(address: str, task: int) -> None:
    """Waits until a server listens, and logs it. Opening a session would wait silently."""
    host, _, port = address.rpartition(":")
    began = said = time.monotonic()
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
            return
        except OSError as error:
            now = time.monotonic()
            if now - said >= _NEXT_LINE:
                said = now
                logger.info(
                    "Waiting for parameter server %d at %s for %.0f s: %s.",
                    task,
                    address,
                    now - began,
                    error.strerror or error,
                )
            time.sleep(_NEXT_LOOK)
