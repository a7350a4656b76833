"""Ends a cluster: the chief tells workers and parameter servers that training is over.

Each worker or parameter server has two queues on its own TensorFlow server. The chief fills the
queue `over`. A worker fills its queue `left` after its last step. The chief tells the workers
first, because workers need the parameter servers until they have left. Then it tells the servers.
"""

import functools
import threading
import time
from typing import Any

import tensorflow as tf

from estimator_emb.backends.cluster import tasks
from estimator_emb.reporting.console import logger

_FOR_ANSWER = 5.0
"""Seconds that the chief waits for a process to answer."""

_FOR_LAST_STEP = 30.0
"""Seconds that a worker has for its last step. The chief waits `_FOR_ANSWER` longer."""

_FOR_CHIEF_TO_HEAR = 1.0
"""Seconds that a process stays alive after its answer, so that the chief receives it."""


class _Queues:
    """A session with a task's queues. Calls time out after `seconds`, or never if 0."""

    def __init__(self, job: str, index: int, target: str, seconds: float = 0.0):
        device = f"/job:{job}/task:{index}"
        graph = tf.Graph()
        with graph.as_default(), tf.device(f"{device}/device:CPU:0"):
            queues = [
                tf.queue.FIFOQueue(1, [tf.bool], [[]], shared_name=f"estimator_emb/{name}")
                for name in ("over", "left")
            ]
            self.tell, self.leave = (queue.enqueue(True) for queue in queues)
            self.hear, self.see_leave = (queue.dequeue() for queue in queues)
        config = tf.compat.v1.ConfigProto(
            device_filters=[device], operation_timeout_in_ms=int(1000 * seconds)
        )
        self.session = tf.compat.v1.Session(target, graph, config)


class Member(tf.compat.v1.train.SessionRunHook):
    """A 'worker' or 'ps' task that waits for the chief's message that training is over.

    As a session hook, it stops a worker's training when the message arrives.
    """

    def __init__(self, job: str, index: int):
        self._job = job
        self._index = index
        self._queues: _Queues | None = None
        self._over = threading.Event()
        self._left = threading.Event()
        self.begun = False

    def listen(self, target: str) -> None:
        """Starts a thread that waits for the chief's message on this process's server `target`."""
        self._queues = _Queues(self._job, self._index, target)
        threading.Thread(target=self._listen, daemon=True).start()

    def wait(self) -> None:
        while not self._over.wait(timeout=1.0):  # Python handles signals between waits.
            pass
        time.sleep(_FOR_CHIEF_TO_HEAR)

    def leave(self) -> None:
        self._left.set()
        if self._queues is not None:
            self._queues.session.run(self._queues.leave)

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.begun = True

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self.is_over():
            run_context.request_stop()

    def is_over(self) -> bool:
        return self._over.is_set()

    def end_late(self, why: str) -> None:
        """Ends this process without a message from the chief. A worker exits immediately."""
        logger.info("Training is over: %s. This process ends.", why)
        if self._job == "ps":
            self._over.set()
        else:
            tasks.end_process(0)

    def _listen(self) -> None:
        assert self._queues is not None
        try:
            self._queues.session.run(self._queues.hear)
        except tf.errors.OpError as error:
            logger.error("This process cannot hear when training is over: %s", error.message)
            return
        self._over.set()
        if self._job == "ps":
            logger.info("Training is over: this parameter server ends.")
            return
        if self.begun and self._left.wait(_FOR_LAST_STEP):
            return
        # The worker is blocked inside TensorFlow or has not started training.
        if not self._left.is_set():
            why = "'s last step does not end" if self.begun else " has made no step"
            logger.info("Training is over. This worker%s: this process ends.", why)
            self._queues.session.run(self._queues.leave)
            time.sleep(_FOR_CHIEF_TO_HEAR)
            tasks.end_process(0)


def end_all(target: str, cluster_spec: tf.train.ClusterSpec) -> None:
    """Tells workers, then servers, that training is over. Skips tasks that are away."""
    for job in ("worker", "ps"):
        told = tasks.tasks_of(cluster_spec, job)
        away = tasks.away(told)
        there = [task for task in told if task not in away]
        seconds = _FOR_ANSWER + (_FOR_LAST_STEP if job == "worker" else 0)
        end = functools.partial(_end, target, seconds)
        tasks.at_once(end, there, seconds + _FOR_ANSWER)


def _end(target: str, seconds: float, task: tasks.Task) -> None:
    try:
        queues = _Queues(task.job, task.index, target, seconds)
        with queues.session as session:
            session.run(queues.tell)
            if task.job == "worker":
                session.run(queues.see_leave)
    except tf.errors.DeadlineExceededError:
        logger.warning("%s has not answered for %.0f s: it is not waited for.", task, seconds)
    except tf.errors.OpError as error:
        logger.debug("%s is gone: %s", task, error)
