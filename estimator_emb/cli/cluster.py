"""Runs a program as a cluster of processes on this machine: `estimator-emb cluster`.

This process supervises the cluster and needs no TensorFlow.
"""

import argparse
import collections
import contextlib
import json
import os
import sched
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from estimator_emb.catalog import environment
from estimator_emb.cli import parsing, processes, run_options
from estimator_emb.cli import screen as screen_lib

DETAILS = """\
Each process runs the same program, as `estimator-emb run` does, with a separate TF_CONFIG. The
program must call tf.estimator.train_and_evaluate, and give its RunConfig a model_dir. Each line of
output starts with the name of its process. When the chief is done, all processes end. The first
Ctrl-C or SIGTERM ends training after the current step, with a checkpoint. The second ends it at
once. The exit status is the chief's status, or 1 if that is 0 and a worker or the evaluator has
failed, or a failed server has ended the training.

With --hosts, each process is a host of PJRT devices (--device=pjrt), without a TF_CONFIG. Host 0 is
the chief. The tables are in the memory of the devices (--tables=device).
"""

_TO_END_BY_ITSELF = 10.0
"""Seconds in which workers and servers must end after the chief, and all after a failure."""

_TO_SAVE = 60.0
"""Seconds in which trainers must finish a step and save the model after Ctrl-C or SIGTERM."""

_UNTIL_LOST = 10.0
"""Seconds in which a chief that has finished training must end after a server has failed."""

_TO_NOTICE = 30.0
"""Seconds in which the other hosts must end after a host has failed."""

_BETWEEN_REMINDERS = 60.0
_LAST_LINES = 10


def fill_parser(parser: parsing.Parser) -> None:
    """Adds the arguments."""
    parser.add_count(
        "--workers",
        help="number of processes that train: 'chief', which also saves the model, and 'worker 0' "
        "to 'worker N-2'. Default: 1",
    )
    parser.add_count("--ps", help="number of parameter servers, 'ps 0' to 'ps N-1'. Default: 1")
    parser.add_argument(
        "--evaluator",
        action="store_true",
        help="add the process 'evaluator', which evaluates each new checkpoint",
    )
    parser.add_count(
        "--wait-limit",
        help="end a process that has waited this long for a missing process. Default: "
        f"{environment.WAIT_LIMIT}, or never",
        metavar="SECONDS",
    )
    parser.add_count(
        "--hosts",
        help="number of hosts that train together on PJRT devices, instead of --workers and --ps",
    )
    parser.add_count(
        "--devices", help="number of CPU devices of each host. Default: the devices that jax finds"
    )
    parser.add_argument(
        "--restarts",
        type=parsing.number(int, "an integer >= 0", lambda value: value >= 0),
        default=0,
        metavar="N",
        help="how often all hosts restart after a signal has ended one of them. Default: 0",
    )
    run_options.add_to(parser)
    parser.add_program()


def main(options: argparse.Namespace) -> int:
    """Runs a program as a cluster. The exit status is in DETAILS, or 128 + the chief's signal."""
    run_options.check_program(options)
    asked = run_options.variables(options, os.environ)  # Refuses conflicting options.
    _check_hosts(options, asked[environment.DEVICE.name])
    # The command line of this process, with `run` instead of `cluster`.
    ours = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    command = [sys.executable, *ours, "run", *run_options.words(options), *options.program]
    variables = dict(os.environ)
    if options.wait_limit is not None:
        variables[environment.WAIT_LIMIT.name] = str(options.wait_limit)
    if options.hosts is not None:
        return start_hosts(command, variables, options.hosts, options.devices, options.restarts)
    return start(command, variables, options.workers or 1, options.ps or 1, options.evaluator)


def _check_hosts(options: argparse.Namespace, device: str) -> None:
    """Raises WrongArguments for conflicting options of hosts and clusters."""
    if options.hosts is None:
        for flag, value in (("--devices", options.devices), ("--restarts", options.restarts)):
            if value:
                raise parsing.WrongArguments(f"{flag} needs --hosts")
        return
    if device != "pjrt":
        raise parsing.WrongArguments(f"--hosts needs --device=pjrt; the device is {device!r}")
    for flag, value in (
        ("--workers", options.workers),
        ("--ps", options.ps),
        ("--evaluator", options.evaluator),
    ):
        if value:
            raise parsing.WrongArguments(f"{flag} does not go with --hosts")


def start(
    command: list[str], variables: dict[str, str], workers: int, servers: int, evaluator: bool
) -> int:
    """Starts a process for each cluster task on loopback, waits, and returns the exit status."""
    jobs = {"chief": 1, "worker": workers - 1, "ps": servers}
    tasks = [(job, index) for job, count in jobs.items() for index in range(count)]
    if evaluator:
        tasks.append(("evaluator", 0))
    direct = variables.get("no_grpc_proxy") or variables.get("no_proxy")
    variables = {
        **variables,
        "PYTHONUNBUFFERED": "1",  # Otherwise Python buffers what it writes to a pipe.
        # gRPC must not use a proxy to reach this machine.
        "no_grpc_proxy": ",".join(filter(None, [direct, "localhost"])),
        "TF_GRPC_REUSE_PORT": "1",  # The servers share the ports that `_addresses` holds.
    }
    launcher = _Launcher(command)
    signals: list[int] = []
    with (
        _addresses({job: count for job, count in jobs.items() if count}) as cluster,
        processes.handled_signals(lambda number, _: signals.append(number)),
        processes.process_group() as group,
    ):
        for job, index in tasks:
            task = {"cluster": cluster, "task": {"type": job, "index": index}}
            try:
                launcher.start(job, index, {**variables, "TF_CONFIG": json.dumps(task)}, group)
            except OSError as error:
                print(f"estimator-emb: cannot start {job} {index}: {error}", file=sys.stderr)
                return 1
        return launcher.wait(signals)


def start_hosts(
    command: list[str], variables: dict[str, str], hosts: int, devices: int | None, restarts: int
) -> int:
    """Runs a command for each host of a training on PJRT devices, and returns the exit status.

    Args:
      command: the command of each host.
      variables: the environment of all hosts.
      hosts: the number of hosts.
      devices: the number of CPU devices of each host. None uses the devices that jax finds.
      restarts: how often all hosts may start again after a signal has ended one of them.
    """
    variables = {**variables, "PYTHONUNBUFFERED": "1", environment.HOSTS.name: str(hosts)}
    if devices is not None:
        flag = f"--xla_force_host_platform_device_count={devices}"
        variables["XLA_FLAGS"] = f"{variables.get('XLA_FLAGS', '')} {flag}".strip()
        variables.setdefault(environment.PJRT_PLATFORM.name, "cpu")
    signals: list[int] = []
    with (
        processes.handled_signals(lambda number, _: signals.append(number)),
        processes.process_group() as group,
    ):
        while True:
            launcher = _Launcher(command)
            with _addresses({"chief": 1}) as cluster:
                variables[environment.COORDINATOR.name] = cluster["chief"][0]
                for number in range(hosts):
                    job, own = "host" if number else "chief", {environment.HOST.name: str(number)}
                    try:
                        launcher.start(job, number, {**variables, **own}, group)
                    except OSError as error:
                        print(
                            f"estimator-emb: cannot start host {number}: {error}", file=sys.stderr
                        )
                        return 1
                status = launcher.wait(signals)
            if not launcher.has_lost_host or not restarts:
                return status
            restarts -= 1
            left = "the last restart" if not restarts else f"{restarts} restarts are left"
            launcher.say(f"All hosts start again, from the last checkpoint; {left}.")


@contextlib.contextmanager
def _addresses(jobs: dict[str, int]) -> Iterator[dict[str, list[str]]]:
    """Yields the addresses of each job's tasks, and reserves their ports inside."""
    with contextlib.ExitStack() as sockets:

        def address() -> str:
            kept = sockets.enter_context(socket.socket())
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            kept.bind(("127.0.0.1", 0))
            return f"localhost:{kept.getsockname()[1]}"

        yield {job: [address() for _ in range(count)] for job, count in jobs.items()}


class _Launcher:
    def __init__(self, command: list[str]):
        self._command = command
        self._processes: list[processes.Process] = []
        self._screen = screen_lib.Screen()
        self._selector = selectors.DefaultSelector()
        self._later = sched.scheduler(time.monotonic)
        self._stopping = False
        self._interrupted_at = 0.0
        self._has_lost_server = self.has_lost_host = False

    def say(self, text: str) -> None:
        self._screen.say(text)

    def start(self, job: str, index: int, variables: dict[str, str], group: int) -> None:
        name = job if job in ("chief", "evaluator") else f"{job} {index}"
        popen = subprocess.Popen(
            self._command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: os.setpgid(0, group),
        )
        last: collections.deque[bytes] = collections.deque(maxlen=_LAST_LINES)
        process = processes.Process(job, name, popen, last, time.monotonic())
        self._processes.append(process)
        for stream, fd in ((popen.stdout, 1), (popen.stderr, 2)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            lines = screen_lib.Lines(f"{name:<9} | ", last)
            self._selector.register(stream, selectors.EVENT_READ, (process, lines, fd))

    def wait(self, signals: list[int]) -> int:
        """Waits for all processes, handles arriving `signals`, and returns the exit status."""
        while self._running():
            for key, _ in self._selector.select(timeout=0.2):
                self._read(key)
            while signals:
                self._interrupt(signal.Signals(signals.pop(0)))
            for process in self._running():
                if process.popen.poll() is not None:
                    process.ended = time.monotonic()
                    self._drain(process)
                    self._react(process)
            self._later.run(blocking=False)
            if self._stopping and not self._running("chief", "worker"):
                for process in self._running("ps"):
                    if not process.told:
                        self._end(process, signal.SIGTERM, _TO_END_BY_ITSELF)
            if self._screen.closed and not self._stopping:
                self._stop(signal.SIGTERM, _TO_SAVE)
            self._draw()
        self._draw(now=True)
        (chief,) = self._running("chief", ended=True)
        status = chief.popen.returncode
        status = 128 - status if status < 0 else status
        for process in self._running("evaluator", "worker", ended=True):
            if process.popen.returncode == 0 or process.told:
                continue
            if process.job == "evaluator":
                self._screen.say(
                    f"{process.name} {process.how_ended()}: evaluations and exports are missing."
                )
            elif (process.ended or 0) > (chief.ended or 0):
                continue  # The servers end with the chief, and a worker may notice it.
            status = status or 1
        return status or int(self._stopping and self._has_lost_server)

    def _running(self, *jobs: str, ended: bool = False) -> list[processes.Process]:
        """Returns the running processes of some jobs (default: all), or those that have `ended`."""
        return [
            one
            for one in self._processes
            if (one.ended is not None) == ended and (not jobs or one.job in jobs)
        ]

    def _read(self, key: Any) -> bool:
        """Shows the output that a stream has ready, and returns whether there was any."""
        _, lines, fd = key.data
        try:
            data = os.read(key.fd, 1 << 16)
        except BlockingIOError:
            return False
        self._screen.write(lines.feed(data), fd)
        if not data:
            self._selector.unregister(key.fileobj)
            key.fileobj.close()
        return bool(data)

    def _drain(self, process: processes.Process) -> None:
        """Shows the rest of an ended process's output. Its children may still be writing."""
        for key in list(self._selector.get_map().values()):
            if key.data[0] is process:
                for _ in range(16):  # Enough to empty a full pipe.
                    if not self._read(key):
                        break
                self._screen.write(key.data[1].feed(b""), key.data[2])

    def _react(self, process: processes.Process) -> None:
        status = process.popen.returncode
        if status != 0 and not process.told:
            text = f"{process.name} {process.how_ended()} after {process.seconds():.0f} s."
            if process.last:
                lines = [f"\n    {line.decode(errors='replace')}" for line in process.last]
                text += " Its last lines:" + "".join(lines)
            self._screen.say(text)
        if self._stopping:
            return
        if self._has_hosts:
            if status != 0:  # The other hosts notice it and end.
                self.has_lost_host |= status < 0
                self._later.enter(_TO_NOTICE, 0, self._lose, (process.name,))
        elif process.job == "chief" and status == 0:
            for other in self._running("worker", "ps"):
                end = (other, signal.SIGTERM, _TO_END_BY_ITSELF)
                self._later.enter(_TO_END_BY_ITSELF, 0, self._end, end)
            self._later.enter(_BETWEEN_REMINDERS, 0, self._remind)
            self._screen.say(f"chief is done after {process.seconds():.0f} s.")
        elif process.job == "chief":
            self._stop_without("chief")
        elif process.job == "ps" and status != 0 and self._running("chief"):
            self._has_lost_server = True
            self._later.enter(_UNTIL_LOST, 0, self._lose, (process.name,))

    @property
    def _has_hosts(self) -> bool:
        return any(one.job == "host" for one in self._processes)

    def _lose(self, other: str) -> None:
        # If training is over, the chief has ended by itself before this is called.
        if self._running("chief", "host") and not self._stopping:
            self._stop_without(other)

    def _stop_without(self, name: str) -> None:
        if self._running():
            self._screen.say(f"Without {name} training cannot go on: all others end.")
        self._stop(signal.SIGTERM, _TO_END_BY_ITSELF)

    def _interrupt(self, number: signal.Signals) -> None:
        now = time.monotonic()
        if not self._interrupted_at:
            self._interrupted_at = now
            saves = "the chief saves the model, and " if self._running("chief") else ""
            self._screen.say(
                f"{number.name}: {saves}all processes end, in {_TO_SAVE:.0f} s at most. Another "
                "signal ends them at once."
            )
            self._stop(number if number == signal.SIGINT else signal.SIGTERM, _TO_SAVE)
        elif now - self._interrupted_at > 1:  # `timeout` signals a process and also its group.
            self._screen.say(f"{number.name} again: all processes are killed.")
            for process in self._running():
                process.send(signal.SIGKILL)

    def _stop(self, number: int, seconds: float) -> None:
        """Signals every process except the servers: the last step and its checkpoint need them."""
        self._stopping = True
        for process in self._running("chief", "worker", "host", "evaluator"):
            self._end(process, number, seconds)

    def _end(self, process: processes.Process, number: int, seconds: float) -> None:
        process.send(number)
        self._later.enter(seconds, 0, process.send, (signal.SIGKILL,))

    def _remind(self) -> None:
        for process in self._running("evaluator"):
            self._screen.say(
                f"The chief is done; {process.name} still runs, after {process.seconds():.0f} s. "
                "It ends when it has evaluated the last checkpoint; Ctrl-C ends it now."
            )
        self._later.enter(_BETWEEN_REMINDERS, 0, self._remind)

    def _draw(self, now: bool = False) -> None:
        self._screen.draw([process.state() for process in self._processes], now)
