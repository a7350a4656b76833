"""Lists the tasks of a cluster, and finds the tasks whose servers are unreachable."""

import contextlib
import dataclasses
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

CHIEFS = ("chief", "master")
"""The names of the job whose task saves the model."""

_FOR_CONNECTION = 3.0


@dataclasses.dataclass(frozen=True)
class Task:
    """A task of a cluster. `address` is the host:port of its server."""

    job: str
    index: int
    address: str

    def __str__(self) -> str:
        return f"/job:{self.job}/task:{self.index} at {self.address}"


def tasks_of(cluster_spec: tf.train.ClusterSpec, *jobs: str) -> list[Task]:
    """Returns the tasks of the named jobs."""
    return [
        Task(job, index, cluster_spec.task_address(job, index))
        for job in jobs
        if job in cluster_spec.jobs
        for index in cluster_spec.task_indices(job)
    ]


def away(tasks: Sequence[Task]) -> list[Task]:
    """Returns the tasks whose servers refuse or do not answer a connection."""
    there: set[Task] = set()

    def knock(task: Task) -> None:
        host, _, port = task.address.rpartition(":")
        with contextlib.suppress(OSError):
            socket.create_connection((host.strip("[]"), int(port)), _FOR_CONNECTION).close()
            there.add(task)

    at_once(knock, tasks, 2 * _FOR_CONNECTION)  # A host name may have several addresses.
    return [task for task in tasks if task not in there]


def at_once(call: Callable[[Task], None], tasks: Sequence[Task], seconds: float) -> None:
    """Calls a function for each task in its own thread, and waits at most `seconds` in all."""
    threads = [threading.Thread(target=call, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))


def end_process(status: int) -> None:
    """Exits this process immediately, without waiting for its threads."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)
