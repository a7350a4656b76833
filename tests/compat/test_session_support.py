"""Tests of `estimator_emb.compat.session_support`, next to TensorFlow's own on 2.15."""

import contextlib
import time
from types import SimpleNamespace
from unittest import mock

import harness
import processes
import pytest
import tensorflow as tf
from tensorflow.core.util import event_pb2

from estimator_emb.compat import session_support as ours

THEIRS = "tensorflow.python.tpu.session_support"
v1 = tf.compat.v1
HOST = "/job:worker/replica:0/task:{}/device:CPU:0"


class FakeSession:
    """Answers for the heartbeat ops: a health for each op name."""

    def __init__(self, health):
        self.health = health
        self.requests = []
        self.timeouts = []

    def run(self, fetches, feed_dict=None, options=None):
        ((_, request),) = feed_dict.items()
        self.requests.append(event_pb2.WorkerHeartbeatRequest.FromString(request))
        self.timeouts.append(options.timeout_in_ms if options else None)
        return [
            event_pb2.WorkerHeartbeatResponse(health_status=self.health[op]).SerializeToString()
            for op in fetches
        ]


def fake_manager(module, **health):
    session = FakeSession(health)
    devices = [f"dev_{name}" for name in health]
    return module.WorkerHeartbeatManager(session, devices, list(health), "request"), session


def test_all_worker_devices(module):
    names = [
        "/job:worker/replica:0/task:0/device:CPU:0",
        "/job:worker/replica:0/task:0/device:TPU:0",
        "/job:worker/replica:0/task:0/device:TPU:1",
        "/job:worker/replica:0/task:0/device:TPU_SYSTEM:0",
        "/job:worker/replica:0/task:1/device:TPU:0",
        "/job:coordinator/replica:0/task:0/device:TPU:0",
    ]
    session = SimpleNamespace(list_devices=lambda: [SimpleNamespace(name=name) for name in names])
    assert module.all_worker_devices(session) == [HOST.format(0), HOST.format(1)]


def test_from_devices_builds_the_ops(module):
    devices = [HOST.format(0), HOST.format(1)]
    with tf.Graph().as_default() as graph:
        manager = module.WorkerHeartbeatManager.from_devices(None, devices)
    assert [(op.type, op.name, op.device) for op in graph.get_operations()] == [
        ("Placeholder", "worker_heartbeat_request", ""),
        ("WorkerHeartbeat", "WorkerHeartbeat", HOST.format(0)),
        ("WorkerHeartbeat", "WorkerHeartbeat_1", HOST.format(1)),
    ]
    assert manager.num_workers() == 2
    assert repr(manager) == f"HeartbeatManager({HOST.format(0)},{HOST.format(1)})"


def test_configure_and_ping(module):
    manager, session = fake_manager(module, a=event_pb2.OK, b=event_pb2.INTERNAL_ERROR)
    request = event_pb2.WorkerHeartbeatRequest(shutdown_mode=event_pb2.WAIT_FOR_COORDINATOR)
    assert manager.configure(request) is None
    answers = manager.ping()
    manager.ping(request, timeout_in_ms=7)
    assert session.requests == [request, event_pb2.WorkerHeartbeatRequest(), request]
    assert session.timeouts == [None, 60000, 7]
    assert [a.health_status for a in answers] == [event_pb2.OK, event_pb2.INTERNAL_ERROR]


def test_lame_workers(module):
    manager, session = fake_manager(
        module, a=event_pb2.RECEIVED_SHUTDOWN_SIGNAL, b=event_pb2.OK, c=event_pb2.SHUTTING_DOWN
    )
    lame = manager.lame_workers()
    assert repr(lame) == "HeartbeatManager(dev_a,dev_c)"
    assert [a.health_status for a in lame.ping()] == [
        event_pb2.RECEIVED_SHUTDOWN_SIGNAL,
        event_pb2.SHUTTING_DOWN,
    ]
    session.health = dict.fromkeys("abc", event_pb2.OK)
    assert manager.lame_workers() is None


def test_shutdown(module, monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    manager, session = fake_manager(module, a=event_pb2.OK)
    manager.shutdown()
    manager.shutdown(wait_time_in_ms=2500, exit_code=3)
    assert slept == [70.0, 12.5]
    assert session.requests == [
        event_pb2.WorkerHeartbeatRequest(
            shutdown_mode=event_pb2.SHUTDOWN_AFTER_TIMEOUT,
            watchdog_config=event_pb2.WatchdogConfig(timeout_ms=timeout),
            exit_code=event_pb2.RequestedExitCode(exit_code=code),
        )
        for timeout, code in ((60000, 0), (2500, 3))
    ]


class Workers:
    """Stands for a `WorkerHeartbeatManager`; notes what happens to it in `events`."""

    def __init__(self, name, events, lame=(), pings=()):
        self.name, self.events = name, events
        self.lame, self.pings = list(lame), list(pings)

    def __str__(self):
        return self.name

    def num_workers(self):
        return 1

    def configure(self, message):
        mode = event_pb2.WorkerShutdownMode.Name(message.shutdown_mode)
        self.events.append((self.name, mode, message.watchdog_config.timeout_ms))

    def lame_workers(self):
        return self.lame.pop(0) if self.lame else None

    def ping(self, request=None):
        self.events.append((self.name, "ping"))
        if self.pings:
            raise self.pings.pop(0)

    def shutdown(self, wait_time_in_ms=60000, exit_code=0):
        self.events.append((self.name, "shutdown", exit_code))


@pytest.mark.parametrize(
    "name, who",
    [("ShutdownLameWorkers", "lame"), ("ShutdownAllWorkers", "all"), ("ResetComputation", "all")],
)
def test_shutdown_workers(module, name, who):
    events = []
    with contextlib.ExitStack() as stack:
        if name == "ResetComputation":
            message = "Resetting session loop due to worker shutdown."
            stack.enter_context(pytest.raises(module.CoordinatorResetError, match=message))
        getattr(module, name)()(None, Workers("all", events), Workers("lame", events))
    assert events == [(who, "shutdown", 42)]


def give_workers(monkeypatch, module, *managers):
    """Has `from_devices` return each of `managers` in turn, or raise it."""
    turn = mock.Mock(side_effect=managers)
    monkeypatch.setattr(module.WorkerHeartbeatManager, "from_devices", turn)


@pytest.mark.parametrize("devices", [[], ["/job:localhost/replica:0/task:0/device:CPU:0"]])
def test_hook_without_a_tpu_does_nothing(module, devices, monkeypatch):
    """Where there is no worker, or one whose device has no kernel for heartbeats."""
    monkeypatch.setattr(module, "all_worker_devices", lambda session: devices)
    called = mock.Mock()
    hook = module.GracefulShutdownHook("prefix", on_shutdown_hooks=[called])
    with tf.Graph().as_default(), v1.Session() as session:
        hook.after_create_session(session, None)
        # With heartbeats on, this would run the op again and fail.
        assert hook.after_run(SimpleNamespace(session=session), None) is None
    called.assert_not_called()


def test_hook_needs_a_global_step_to_save():
    with tf.Graph().as_default(), v1.Session() as session:
        hook = ours.GracefulShutdownHook("prefix", saver=object())
        assert harness.refusal(ValueError, hook.after_create_session, session, None) == (
            "There is a saver but no global step: call `get_or_create_global_step()` in your model "
            "definition, so that checkpoints can be saved."
        )


def test_hook_finds_the_saver(module):
    hook = module.GracefulShutdownHook("prefix")
    with tf.Graph().as_default():
        assert hook.saver() is None
        v1.add_to_collection("savers", "one")
        assert hook.saver() == "one"
        assert module.GracefulShutdownHook("prefix", saver="own").saver() == "own"
        v1.add_to_collection("savers", "two")
        assert hook.saver() is None


def test_hook_saves_then_calls(module, monkeypatch, tmp_path):
    events = []
    lame = Workers("lame", events)
    workers = Workers("all", events, lame=[None, lame])
    give_workers(monkeypatch, module, workers)

    def on_shutdown(run_context, all_workers, lame_workers):
        found = tf.train.latest_checkpoint(str(tmp_path))
        events.append((run_context, all_workers, lame_workers, found))

    prefix = str(tmp_path / "model.ckpt")
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.train.get_or_create_global_step()
        session.run(step.assign(7))
        hook = module.GracefulShutdownHook(prefix, v1.train.Saver(), [on_shutdown])
        hook.after_create_session(session, None)
        run_context = SimpleNamespace(session=session)
        hook.after_run(run_context, None)
        assert events == [("all", "WAIT_FOR_COORDINATOR", 0)]
        assert tf.train.latest_checkpoint(str(tmp_path)) is None
        hook.after_run(run_context, None)
    assert events[1:] == [(run_context, workers, lame, prefix + "-7")]


def test_reset_in_a_monitored_session(module, monkeypatch, tmp_path):
    """A lame worker after step 2: a checkpoint, a new session, and the training goes on."""
    events = []
    first = Workers("first", events, lame=[None, Workers("lame", events)])
    give_workers(monkeypatch, module, first, Workers("second", events))
    hook = module.GracefulShutdownHook(
        str(tmp_path / "model.ckpt"), on_shutdown_hooks=[module.ResetComputation()]
    )
    steps = []
    with tf.Graph().as_default():
        train_op = v1.assign_add(v1.train.get_or_create_global_step(), 1)
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path),
            hooks=[hook],
            save_checkpoint_steps=None,
            save_checkpoint_secs=None,
            log_step_count_steps=None,
        ) as session:
            for _ in range(3):
                steps.append(int(session.run(train_op)))
    # Step 2 was lost with its session, but not its checkpoint, so its run is made again as step 3.
    assert steps == [1, 3, 4]
    assert events == [
        ("first", "WAIT_FOR_COORDINATOR", 0),
        ("first", "shutdown", 42),
        ("second", "WAIT_FOR_COORDINATOR", 0),
    ]


def test_watchdog(module, monkeypatch):
    events = []
    give_workers(monkeypatch, module, Workers("first", events), Workers("second", events))
    with v1.Session(graph=tf.Graph()) as session:
        watchdog = module.WatchdogManager(session, ping_interval=0.01, shutdown_timeout=5)
        assert watchdog.daemon
        with watchdog:
            processes.until(lambda: events.count(("first", "ping")) >= 3)
        assert not watchdog.is_alive()
    assert events[0] == ("first", "WAIT_FOR_COORDINATOR", 5000)
    assert ("second", "NOT_CONFIGURED", -1) in events


def test_watchdog_connects_again_and_stops_at_once(monkeypatch):
    """Also where a connection fails in between."""
    events = []
    first = Workers("first", events, pings=[tf.errors.UnavailableError(None, None, "lost")])
    still_lost = tf.errors.DeadlineExceededError(None, None, "still lost")
    others = Workers("second", events), Workers("third", events)
    give_workers(monkeypatch, ours, first, still_lost, *others)
    monkeypatch.setattr(ours, "_RETRY_SECS", 0.01)
    with v1.Session(graph=tf.Graph()) as session:
        with ours.WatchdogManager(session, ping_interval=600, shutdown_timeout=5):
            processes.until(lambda: ("second", "ping") in events)
    assert events == [
        ("first", "WAIT_FOR_COORDINATOR", 5000),
        ("first", "ping"),
        ("second", "WAIT_FOR_COORDINATOR", 5000),
        ("second", "ping"),
        ("third", "NOT_CONFIGURED", -1),
    ]


def test_one_global_watchdog(module, monkeypatch):
    made = []

    class Watchdog:
        def __init__(self, *args):
            made.append([*args])

        def configure_and_run(self):
            made[-1].append("run")

        def stop(self):
            made[-1].append("stop")

    monkeypatch.setattr(module, "WatchdogManager", Watchdog)
    module.stop_worker_watchdog()
    assert made == []
    module.start_worker_watchdog("session", shutdown_timeout=100)
    module.start_worker_watchdog("other")
    assert made == [["session", None, 10.0, 100, "run"]]
    module.stop_worker_watchdog()
    module.stop_worker_watchdog()
    assert made == [["session", None, 10.0, 100, "run", "stop"]]
    module.start_worker_watchdog("other", ["device"], ping_interval=5)
    module.stop_worker_watchdog()
    assert made[1:] == [["other", ["device"], 5, 3600, "run", "stop"]]
