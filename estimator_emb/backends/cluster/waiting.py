"""Logs which tasks a process of a cluster waits for.

TensorFlow waits forever for a server that does not answer, and names the server only in its C++
log. Here, a thread regularly connects to the cluster's tasks. A task that does not accept the
connection is away.
"""

import threading
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

from estimator_emb.backends.cluster import tasks
from estimator_emb.catalog import environment
from estimator_emb.reporting.console import logger
from estimator_emb.spec import options

_BETWEEN_KNOCKS = 5.0
_UNTIL_SAID = 30.0
"""Seconds of absence that are not logged, because a process may take that long to start."""

_BETWEEN_LINES = 60.0

_UNTIL_OVER = {"ps": 600.0}
"""Job -> seconds of the chief's absence before checking whether training is over.

A parameter server waits longer than a worker, because the chief may be started again. A worker has
nothing to do after the last step."""

_NEEDED = {"chief": ("ps",), "master": ("ps",), "worker": ("ps", *tasks.CHIEFS)}
"""Job -> the jobs that it waits for. Other jobs wait for the chief."""


class AbsenceWatch:
    """Logs, in a thread, which tasks are away that `job` waits for.

    If the chief has been away for some time, the thread calls `is_over` and stops on True.
    """

    def __init__(self, cluster_spec: tf.train.ClusterSpec, job: str, is_over: Callable[[], bool]):
        self._tasks = tasks.tasks_of(cluster_spec, *_NEEDED.get(job, tasks.CHIEFS))
        self._patience = _UNTIL_OVER.get(job, _UNTIL_SAID)
        self._limit = options.asked_wait_limit()
        self._is_over = is_over
        self._stopped = threading.Event()
        self._since: dict[tasks.Task, float] = {}
        self._said: dict[tasks.Task, float] = {}

    def start(self) -> None:
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        while self._tasks and not self._stopped.wait(_BETWEEN_KNOCKS):
            missing = tasks.away(self._tasks)
            if not self._stopped.is_set():
                self._judge(missing, time.monotonic())

    def _judge(self, missing: Sequence[tasks.Task], now: float) -> None:
        """Logs tasks that went away or came back, and ends the process at the wait limit."""
        for task in set(self._since) - set(missing):
            seconds = now - self._since.pop(task)
            if self._said.pop(task, None) is not None:
                logger.info("%s is there, after %.0f s.", task, seconds)
        seconds_of = {task: now - self._since.setdefault(task, now) for task in missing}
        for task, seconds in seconds_of.items():
            if task.job in tasks.CHIEFS and seconds >= self._patience and self._is_over():
                self.stop()
                return
            if self._limit is not None and seconds >= self._limit:
                logger.error(
                    "%s has been away for %.0f s, and %s=%g: this process ends.",
                    task,
                    seconds,
                    environment.WAIT_LIMIT,
                    self._limit,
                )
                tasks.end_process(1)
        long = [task for task, seconds in seconds_of.items() if seconds >= _UNTIL_SAID]
        if any(now - self._said.get(task, -_BETWEEN_LINES) >= _BETWEEN_LINES for task in long):
            self._said = dict.fromkeys(long, now)
            said = [f"{task} has been away for {seconds_of[task]:.0f} s" for task in long]
            logger.warning("%s.", "; ".join(said))
