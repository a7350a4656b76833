"""Measures the embedding work of a training step on parameter servers, over the whole cluster.

    python benchmarks/cluster.py [--workers=1] [--servers=2] [--steps=200] [--rounds=3]
        [--tables=26] [--vocabulary=100000] [--batch=4096] [--ordered] [--peers NAME ...]

It starts every task of the cluster as a process on loopback. Figures are for a step of one trainer,
as medians over the rounds:

  cpu ms       user and system time of all processes, then of trainers, then of servers
  busiest      cpu time of the busiest server, as a multiple of the servers' mean
  MB, packets  traffic between all processes
  examples/s   of all trainers together

'ours (native)' and 'ours' train with TPUEstimator, the first with native kernels, the second with
TensorFlow's ops. They differ only in ESTIMATOR_EMB_NATIVE. 'transport' is the floor: TensorFlow's
ops move as many bytes as a step must move (row ids, values and gradients) and do nothing else.
'stock' trains embedding columns with tensorflow-estimator, in the Python that the environment
variable ESTIMATOR_EMB_STOCK_PYTHON names. Without the variable, 'stock' is left out.

If the system allows it, the cluster gets its own network, so that no other traffic is counted.
"""

import argparse
import ctypes
import fcntl
import json
import math
import os
import pathlib
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np
from workload import IDS_VARIABLE, Workload, environment, positive

HERE = pathlib.Path(__file__).parent
PEERS = ("ours (native)", "ours", "transport", "stock")
STOCK = "ESTIMATOR_EMB_STOCK_PYTHON"
FIGURES = ("cpu", "trainers", "servers", "busiest", "MB", "packets", "examples")


def own_network() -> bool:
    """Moves this process into a network with loopback only, and returns whether that worked."""
    new_user, new_network = 0x10000000, 0x40000000
    flags = new_network | (new_user if os.geteuid() else 0)
    try:
        if ctypes.CDLL(None, use_errno=True).unshare(flags):
            return False
    except AttributeError:  # Not Linux.
        return False
    set_flags, up = 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sH14x", b"lo", up))
    return True


def traffic() -> tuple[int, int]:
    """Returns the numbers of bytes and packets that loopback has carried."""
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == "lo":
            received = figures.split()
            return int(received[0]), int(received[1])
    return 0, 0


def cpu_ms(pid: int) -> float:
    """Returns the user and system time of a process, in milliseconds."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


class Cluster:
    """A running cluster that trains a peer."""

    def __init__(self, peer: str, work: Workload, options: argparse.Namespace, folder: str):
        self._work = work
        jobs = {"chief": 1, "worker": options.workers - 1, "ps": options.servers}
        tasks = [(job, index) for job, count in jobs.items() for index in range(count)]
        # The sockets reserve these ports, and the servers share the ports with them.
        self._ports = {task: socket.socket() for task in tasks}
        cluster: dict[str, list[str]] = {}
        for (job, _), port in self._ports.items():
            port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            port.bind(("127.0.0.1", 0))
            cluster.setdefault(job, []).append(f"127.0.0.1:{port.getsockname()[1]}")
        python = os.environ[STOCK] if peer == "stock" else sys.executable
        self._processes = {}
        self._log = pathlib.Path(folder) / "log"
        for job, index in tasks:
            changes = {
                IDS_VARIABLE: os.path.join(folder, "ids.npy"),
                "TF_CPP_MIN_LOG_LEVEL": "3",
                "TF_GRPC_REUSE_PORT": "1",
                "ESTIMATOR_EMB_NATIVE": "1" if peer == "ours (native)" else "0",
                "TF_CONFIG": json.dumps(
                    {"cluster": cluster, "task": {"type": job, "index": index}}
                ),
            }
            with self._log.open("w") as log:
                self._processes[job, index] = subprocess.Popen(
                    [python, str(HERE / "cluster_task.py"), peer, json.dumps(vars(work)), folder],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=environment(**changes),
                )
        self._trainers = [task for task in tasks if task[0] != "ps"]
        for task in self._trainers:
            self._line(task)  # Ready after its first steps.

    def run(self, steps: int) -> dict[str, float]:
        """Trains some steps on every trainer, and returns the figures."""
        before, began, sent = self._cpu(), time.monotonic(), traffic()
        for task in self._trainers:
            print(steps, file=self._processes[task].stdin, flush=True)
        for task in self._trainers:
            self._line(task)
        seconds = time.monotonic() - began
        after, now = self._cpu(), traffic()
        spent = {task: after[task] - before[task] for task in after}
        of_servers = [ms for (job, _), ms in spent.items() if job == "ps"]
        mean = statistics.mean(of_servers) or math.nan  # 0 below a clock tick.
        taken = steps * len(self._trainers)
        return {
            "cpu": sum(spent.values()) / taken,
            "trainers": sum(spent[task] for task in self._trainers) / taken,
            "servers": sum(of_servers) / taken,
            "busiest": max(of_servers) / mean,
            "MB": (now[0] - sent[0]) / taken / 1e6,
            "packets": (now[1] - sent[1]) / taken,
            "examples": taken * self._work.batch / seconds,
        }

    def _cpu(self) -> dict[tuple[str, int], float]:
        return {task: cpu_ms(process.pid) for task, process in self._processes.items()}

    def _line(self, task: tuple[str, int]) -> None:
        stdout = self._processes[task].stdout
        assert stdout
        for line in stdout:
            if line.startswith("ready"):
                return
        raise RuntimeError(f"{task} failed:\n{self._log.read_text()[-3000:]}")

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.communicate()


def measure(peer: str, work: Workload, options: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        np.save(
            os.path.join(folder, "ids.npy"),
            np.stack([work.ids_of(table) for table in range(work.tables)]),
        )
        cluster = Cluster(peer, work, options, folder)
        try:
            cluster.run(options.steps // 2 + 1)
            rounds = [cluster.run(options.steps) for _ in range(options.rounds)]
        finally:
            cluster.stop()
    return {figure: statistics.median(one[figure] for one in rounds) for figure in FIGURES}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=positive, default=1, help="trainers, with the chief")
    parser.add_argument("--servers", type=positive, default=2)
    parser.add_argument("--steps", type=positive, default=200, help="of a round")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--tables", type=positive, default=26)
    parser.add_argument("--vocabulary", type=positive, default=100_000)
    parser.add_argument("--batch", type=positive, default=4096)
    parser.add_argument("--ordered", action="store_true", help="ids in order of frequency")
    parser.add_argument("--peers", nargs="+", default=PEERS, choices=PEERS, metavar="NAME")
    options = parser.parse_args()
    alone = own_network()
    work = Workload(
        tables=options.tables,
        vocabulary=options.vocabulary,
        batch=options.batch,
        ordered=options.ordered,
    )
    print(
        f"{options.workers} trainers, {options.servers} servers: {work.tables} tables of "
        f"{work.vocabulary:,} x {work.dimension}, batch {work.batch}, {work.optimizer}"
    )
    if not alone:
        print("MB and packets count all that the machine sends to itself")
    print(f"{'':14s}" + "".join(f"{figure:>10s}" for figure in FIGURES))
    for peer in options.peers:
        if peer == "stock" and STOCK not in os.environ:
            continue
        found = measure(peer, work, options)
        print(f"{peer:14s}" + "".join(f"{found[figure]:10.1f}" for figure in FIGURES), flush=True)


if __name__ == "__main__":
    main()
