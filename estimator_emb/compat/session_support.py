"""Replaces `tensorflow.python.tpu.session_support`, which TensorFlow >= 2.16 lacks.

tensorflow-estimator imports it in `tpu/tpu_estimator.py`, for the worker watchdog and for the hook
that saves a checkpoint when a TPU worker is about to go away. The `WorkerHeartbeat` op, which asks
the workers for their health, has a kernel on TPU hosts only.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from google.protobuf import text_format

from estimator_emb.private.protos import event_pb2
from estimator_emb.private.tpu import tpu_ops

logging = tf.compat.v1.logging

# The exit code that a worker's job manager sees after a shutdown by the coordinator.
_RESTART_EXIT_CODE = 42
# How long the watchdog waits at most, after a failed ping, before it tries a new session.
_RETRY_SECS = 1.0
# A shutdown waits this much longer than the time that it gives to the workers.
_SHUTDOWN_MARGIN_SECS = 10.0

_watchdog: "WatchdogManager | None" = None


class CoordinatorResetError(tf.errors.AbortedError):
    """The error on which a monitored session starts again, as on any `AbortedError`."""

    def __init__(self):
        super().__init__(None, None, "Resetting session loop due to worker shutdown.")


def all_worker_devices(session) -> list[str]:
    """Returns the CPU device of each host with a TPU, on which its heartbeat op runs."""
    names = [device.name for device in session.list_devices()]
    hosts = (name for name in names if ":TPU:0" in name and "coordinator" not in name)
    return [name.replace("TPU", "CPU") for name in hosts]


class WorkerHeartbeatManager:
    """Workers and the ops, in the same order, that ask for their health and shut them down.

    Usually `from_devices` creates it.
    """

    def __init__(self, session, devices: Sequence[str], heartbeat_ops, request_placeholder):
        self._session = session
        self._devices = devices
        self._ops = heartbeat_ops
        self._request_placeholder = request_placeholder

    @staticmethod
    def from_devices(session, devices: Sequence[str]) -> "WorkerHeartbeatManager":
        """Adds heartbeat ops for `devices` to the default graph, and returns their manager."""
        logging.info("Creating a heartbeat manager for %s", devices)
        request = tf.compat.v1.placeholder(tf.string, name="worker_heartbeat_request")
        heartbeat_ops = []
        for device in devices:
            with tf.compat.v1.device(device):
                heartbeat_ops.append(tpu_ops.worker_heartbeat(request))
        return WorkerHeartbeatManager(session, devices, heartbeat_ops, request)

    def __repr__(self) -> str:
        return f"HeartbeatManager({','.join(self._devices)})"

    def num_workers(self) -> int:
        return len(self._devices)

    def configure(self, message: event_pb2.WorkerHeartbeatRequest) -> None:
        logging.info("Configuring worker heartbeat: %s", text_format.MessageToString(message))
        self._session.run(self._ops, {self._request_placeholder: message.SerializeToString()})

    def ping(
        self,
        request: event_pb2.WorkerHeartbeatRequest | None = None,
        timeout_in_ms: int = 60000,
    ) -> list[event_pb2.WorkerHeartbeatResponse]:
        """Sends `request`, by default an empty one, and returns the workers' answers."""
        if request is None:
            request = event_pb2.WorkerHeartbeatRequest()
        answers = self._session.run(
            self._ops,
            feed_dict={self._request_placeholder: request.SerializeToString()},
            options=tf.compat.v1.RunOptions(timeout_in_ms=timeout_in_ms),
        )
        responses = [event_pb2.WorkerHeartbeatResponse.FromString(answer) for answer in answers]
        logging.debug("Ping results: %s", responses)
        return responses

    def lame_workers(self) -> "WorkerHeartbeatManager | None":
        """Returns a manager of the workers that do not report good health, or `None`."""
        lame = [
            (device, op)
            for response, device, op in zip(self.ping(), self._devices, self._ops, strict=True)
            if response.health_status != event_pb2.OK
        ]
        if not lame:
            return None
        devices, heartbeat_ops = zip(*lame, strict=True)
        return WorkerHeartbeatManager(
            self._session, devices, heartbeat_ops, self._request_placeholder
        )

    def shutdown(self, wait_time_in_ms: int = 60000, exit_code: int = 0) -> None:
        """Makes the workers exit after a time to flush logs, and waits until they should have."""
        logging.info("Shutting down %s.", self)
        self.configure(
            event_pb2.WorkerHeartbeatRequest(
                shutdown_mode=event_pb2.SHUTDOWN_AFTER_TIMEOUT,
                watchdog_config=event_pb2.WatchdogConfig(timeout_ms=wait_time_in_ms),
                exit_code=event_pb2.RequestedExitCode(exit_code=exit_code),
            )
        )
        seconds = _SHUTDOWN_MARGIN_SECS + wait_time_in_ms / 1000
        logging.info("Waiting %.2f seconds for the workers to shut down.", seconds)
        time.sleep(seconds)


def _connected(
    target: str, config, devices: Sequence[str] | None = None
) -> tuple[WorkerHeartbeatManager, Sequence[str]]:
    """Returns a manager with a graph of its own, as a training's is final, and its devices."""
    graph = tf.Graph()
    session = tf.compat.v1.Session(target=target, graph=graph, config=config)
    if devices is None:
        devices = all_worker_devices(session)
    with graph.as_default():
        return WorkerHeartbeatManager.from_devices(session, devices), devices


class WatchdogManager(threading.Thread):
    """A thread that pings workers, so that they end when this program, their coordinator, does.

    A worker without a ping for `shutdown_timeout` seconds shuts down. Use it as a context manager,
    which ends the watch on exit, or call `configure_and_run` for a watch up to the end of the
    program. Pings use a session of their own, with the target of `session`.
    """

    def __init__(
        self,
        session,
        devices: Sequence[str] | None = None,
        ping_interval: float = 60,
        shutdown_timeout: float = 2 * 3600,
    ):
        super().__init__(daemon=True)
        self.ping_interval = ping_interval
        self.shutdown_timeout = shutdown_timeout
        self._session = session.sess_str, session._config
        self._devices = devices
        self._stopping = threading.Event()

    def configure_and_run(self) -> None:
        logging.info(
            "Starting the worker watchdog: timeout %d seconds, ping interval %d seconds.",
            self.shutdown_timeout,
            self.ping_interval,
        )
        self._watch()
        self.start()

    def stop(self) -> None:
        logging.info("Stopping the worker watchdog.")
        # In this order, because the thread may connect again, which sets the timeout.
        self._stopping.set()
        self.join()
        self._connect(event_pb2.NOT_CONFIGURED, -1)

    def __enter__(self) -> None:
        self.configure_and_run()

    def __exit__(self, exc_type, exc_value, traceback) -> None:
        self.stop()

    def run(self) -> None:
        broken = False
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                if broken:
                    self._watch()
                self._worker_manager.ping()
                broken, pause = False, self.ping_interval
            except tf.errors.OpError as error:
                # The session is likely broken: go on with a new one.
                logging.debug("A heartbeat failed: %s", error)
                broken, pause = True, min(_RETRY_SECS, self.ping_interval)

    def _watch(self) -> None:
        self._connect(event_pb2.WAIT_FOR_COORDINATOR, int(self.shutdown_timeout * 1000))

    def _connect(self, shutdown_mode, timeout_ms: int) -> None:
        self._worker_manager, self._devices = _connected(*self._session, self._devices)
        self._worker_manager.configure(
            event_pb2.WorkerHeartbeatRequest(
                shutdown_mode=shutdown_mode,
                watchdog_config=event_pb2.WatchdogConfig(timeout_ms=timeout_ms),
            )
        )


def start_worker_watchdog(
    session,
    devices: Sequence[str] | None = None,
    ping_interval: float = 60,
    shutdown_timeout: float = 3600,
) -> None:
    """Starts the one watchdog of this program, unless it runs already."""
    global _watchdog
    if _watchdog is None:
        # Ten pings or more within the timeout: a few may get lost.
        ping_interval = min(ping_interval, shutdown_timeout / 10)
        watchdog = WatchdogManager(session, devices, ping_interval, shutdown_timeout)
        watchdog.configure_and_run()
        _watchdog = watchdog


def stop_worker_watchdog() -> None:
    """Stops the watchdog of `start_worker_watchdog`, if it runs."""
    global _watchdog
    if _watchdog is not None:
        _watchdog.stop()
        _watchdog = None


class GracefulShutdownHook(tf.compat.v1.train.SessionRunHook):
    """A hook that looks for workers in bad health after each step.

    When there are some, it saves a checkpoint, then calls each of `on_shutdown_hooks` with
    `(run_context, all_workers, lame_workers)`; the last two are `WorkerHeartbeatManager`s. The
    saver is by default the one of the SAVERS collection, if any.
    """

    def __init__(
        self,
        checkpoint_prefix: str,
        saver=None,
        on_shutdown_hooks: Sequence[Callable] | None = None,
    ):
        self._checkpoint_prefix = checkpoint_prefix
        self._saver = saver
        self._on_shutdown_hooks = on_shutdown_hooks or []

    def after_create_session(self, session, coord) -> None:
        """Connects to the workers; only warns where there are none, or none with heartbeats."""
        if tf.compat.v1.train.get_global_step() is None and self.saver() is not None:
            raise ValueError(
                "There is a saver but no global step: call `get_or_create_global_step()` in your "
                "model definition, so that checkpoints can be saved."
            )
        logging.info("Installing the graceful shutdown hook.")
        self._workers: Any = None
        """The workers, where they support heartbeats."""
        workers, _ = _connected(session.sess_str, session._config)
        if not workers.num_workers():
            logging.warning("No worker supports heartbeats: failures are not handled.")
            return
        try:
            workers.configure(
                event_pb2.WorkerHeartbeatRequest(shutdown_mode=event_pb2.WAIT_FOR_COORDINATOR)
            )
        except tf.errors.InvalidArgumentError:
            logging.warning("The TPU workers do not support heartbeats: failures are not handled.")
        else:
            self._workers = workers

    def saver(self):
        if self._saver:
            return self._saver
        savers = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS)
        if len(savers) > 1:
            logging.error(
                "The SAVERS collection has more than one saver, so none will save a checkpoint on "
                "shutdown. Give the hook an explicit `saver`."
            )
        return savers[0] if len(savers) == 1 else None

    def after_run(self, run_context, run_values) -> None:
        lame_workers = self._workers and self._workers.lame_workers()
        if lame_workers is None:
            return
        logging.info("Workers which are not well: %s", lame_workers)
        saver = self.saver()
        if saver:
            logging.info("Saving a checkpoint to %s before shutdown.", self._checkpoint_prefix)
            saver.save(
                run_context.session,
                self._checkpoint_prefix,
                global_step=tf.compat.v1.train.get_global_step(),
                write_state=True,
            )
        else:
            logging.info("There is no saver, so no checkpoint is saved before shutdown.")
        for on_shutdown in self._on_shutdown_hooks:
            on_shutdown(run_context, self._workers, lame_workers)


class ShutdownLameWorkers:
    """Shuts the workers in bad health down; training waits for them to come back."""

    def __call__(self, run_context, all_workers, lame_workers) -> None:
        lame_workers.shutdown(exit_code=_RESTART_EXIT_CODE)


class ShutdownAllWorkers:
    """Shuts all workers down; training waits for them to come back."""

    def __call__(self, run_context, all_workers, lame_workers) -> None:
        all_workers.shutdown(exit_code=_RESTART_EXIT_CODE)


class ResetComputation:
    """Shuts all workers down and makes the monitored session start again."""

    def __call__(self, run_context, all_workers, lame_workers) -> None:
        all_workers.shutdown(exit_code=_RESTART_EXIT_CODE)
        logging.info("Resetting the coordinator.")
        raise CoordinatorResetError()
