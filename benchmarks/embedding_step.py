"""Measures the embedding work of a training step, for this package and for alternatives.

    python benchmarks/embedding_step.py [--quick] [--torch_python=VENV/bin/python]
        [--json=FILE] [--plot=FILE]

A step looks up ids, combines rows, takes a given gradient and updates the tables. It has no input
pipeline and no dense model. Each peer runs in its own process. The peers take turns, round after
round, and figures are medians over the rounds:

  wall ms, cpu ms   per step, with user and system time of the process as cpu
  x ours            cpu ms divided by that of 'ours' in the same round: above 1, 'ours' is faster
  x floor           wall ms divided by the memory floor in the same round

The memory floor is the bytes that a step must read and write, divided by the bandwidth of all cores
in the same round. The bandwidth for rows is for random places of a table as large as the
workload's. The bandwidth for the rest is for copying. This needs a C++ compiler.

Before the timing, each peer takes two steps, and its tables must equal NumPy's.

'ours' is the graph that TPUEstimator builds with TensorFlow's own ops. 'ours (native)' is the graph
with native kernels, if there are any. The two differ only in ESTIMATOR_EMB_NATIVE.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import peers
import plot
from workload import IDS_VARIABLE, Workload, environment, positive

HERE = pathlib.Path(__file__).parent
WORKLOADS = {
    "standard": Workload(),
    "20 ids": Workload(tables=8, ids=20),
    "D=64": Workload(dimension=64),
    "1M rows": Workload(vocabulary=1_000_000),
    "lazy Adam": Workload(optimizer="adam"),
    "1 table": Workload(tables=1),
    "100 tables": Workload(tables=100),
    "batch 1024": Workload(batch=1024),
    "batch 8192": Workload(batch=8192),
    "batch 32768": Workload(batch=32768),
}
PROCESS_BYTES = 6e8
"""About how many bytes a peer's process takes besides its tables."""


class Peer:
    """The running process of a peer."""

    def __init__(self, name: str, work: Workload, python: str, folder: str):
        self.name, self.rounds = name, []
        file = os.path.join(folder, f"{name}.npz")
        self._log = os.path.join(folder, f"{name}.log")
        changes = {
            IDS_VARIABLE: os.path.join(folder, "ids.npy"),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "ESTIMATOR_EMB_NATIVE": "1" if name == "ours (native)" else "0",
        }
        if name in peers.TORCH_PEERS:
            changes["OMP_WAIT_POLICY"] = "PASSIVE"  # Busy waiting would count as CPU time.
        if name == "tf-keras":
            changes["TF_USE_LEGACY_KERAS"] = "1"
        with open(self._log, "w") as log:
            self._process = subprocess.Popen(
                [python, str(HERE / "peers.py"), name, json.dumps(vars(work)), file],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment(**changes),
            )
        answer = self._answer()
        self.unsupported = answer.get("unsupported")
        if self.unsupported is None:
            computed = np.load(file)
            for key, table in (("first", 0), ("last", work.tables - 1)):
                if not np.allclose(computed[key], work.expected(table), atol=1e-5, rtol=0):
                    self.unsupported = f"computes another table {table} than NumPy"
                    if name.startswith("ours"):
                        raise AssertionError(f"{name} {self.unsupported}")
            os.remove(file)

    def run(self, steps: int) -> dict[str, float]:
        assert self._process.stdin
        print(steps, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            log = pathlib.Path(self._log).read_text()[-3000:]
            raise RuntimeError(f"{self.name} failed:\n{log}")
        return json.loads(line)

    def stop(self) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def groups(names: list[str], work: Workload, memory: float) -> list[list[str]]:
    """Returns groups of peers that fit into memory together. Each group has 'ours'."""
    size = max(2, int(memory / (work.table_bytes() + PROCESS_BYTES)))
    others = [name for name in names if name != "ours"]
    starts = range(0, max(len(others), 1), size - 1)
    return [["ours", *others[start : start + size - 1]] for start in starts]


def measure(
    work: Workload, names: list[str], options: argparse.Namespace
) -> tuple[dict[str, dict], float | None]:
    """Returns the figures of each peer, in the order of `names`, and the memory floor in ms."""
    figures: dict[str, dict] = {name: {"rounds": []} for name in names}
    floors = []
    with tempfile.TemporaryDirectory() as folder:
        floor = Floor(work, folder)
        np.save(
            os.path.join(folder, "ids.npy"),
            np.stack([work.ids_of(table) for table in range(work.tables)]),
        )
        for group in groups(names, work, options.memory_gb * 1e9):
            running = []
            try:
                for name in group:
                    torch = name in peers.TORCH_PEERS
                    python = options.torch_python if torch else sys.executable
                    peer = Peer(name, work, python, folder)
                    running.append(peer)
                    if peer.unsupported is not None:
                        figures[name]["unsupported"] = peer.unsupported
                active = [peer for peer in running if peer.unsupported is None]
                steps = {
                    peer.name: max(2, min(200, int(400 / max(peer.run(5)["wall"], 0.1))))
                    for peer in active
                }
                for peer in active:
                    peer.run(steps[peer.name] // 2 + 1)
                for _ in range(options.rounds):
                    round_figures = {peer.name: peer.run(steps[peer.name]) for peer in active}
                    floor_ms = floor.measure()
                    if floor_ms is not None:
                        floors.append(floor_ms)
                    for name, peer_figures in round_figures.items():
                        peer_figures["x ours"] = peer_figures["cpu"] / round_figures["ours"]["cpu"]
                        if floor_ms is not None:
                            peer_figures["x floor"] = peer_figures["wall"] / floor_ms
                        figures[name]["rounds"].append(peer_figures)
            finally:
                for peer in running:
                    peer.stop()
    for peer_figures in figures.values():
        rounds = peer_figures.pop("rounds")
        for key in rounds[0] if rounds else ():
            peer_figures[key] = statistics.median(round_figures[key] for round_figures in rounds)
    return figures, statistics.median(floors) if floors else None


class Floor:
    """Measures the time that the memory accesses of a step need at this moment."""

    def __init__(self, work: Workload, folder: str):
        program, source = os.path.join(folder, "floor"), str(HERE / "floor.cc")
        build = ["c++", "-O3", "-march=native", "-pthread", source, "-o", program]
        per_table = work.vocabulary * work.dimension * 4
        table = max(min(work.tables * per_table, 2**31), 2**27)
        self._command: list[str] | None = [program, str(work.dimension), str(table)]
        try:
            subprocess.run(build, check=True)
        except (OSError, subprocess.CalledProcessError):
            self._command = None
        self._rows, self._stream = work.row_bytes(), work.stream_bytes()

    def measure(self) -> float | None:
        """Returns milliseconds, or None without a compiler."""
        if self._command is None:
            return None
        done = subprocess.run(self._command, check=True, capture_output=True)
        bandwidth = json.loads(done.stdout)
        return (self._rows / bandwidth["random"] + self._stream / bandwidth["copy"]) / 1e6


def show(
    title: str, work: Workload, peers_figures: dict[str, dict], floor_ms: float | None
) -> None:
    print(
        f"\n{title}: {work.tables} tables of {work.vocabulary:,} x {work.dimension}, batch "
        f"{work.batch}, ids {work.ids}, {work.optimizer}"
    )
    if floor_ms is None:
        print("memory floor: no C++ compiler")
    else:
        print(f"memory floor: {floor_ms:.2f} ms")
    print(f"{'':18s} {'wall ms':>8s} {'cpu ms':>8s} {'x ours':>8s} {'x floor':>8s}")
    for name, peer_figures in peers_figures.items():
        if "cpu" not in peer_figures:
            print(f"{name:18s} {peer_figures['unsupported']}")
            continue
        figures = (
            peer_figures.get(key, float("nan")) for key in ("wall", "cpu", "x ours", "x floor")
        )
        print(f"{name:18s}", *(f"{figure:8.2f}" for figure in figures))
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the standard workload, few rounds")
    parser.add_argument(
        "--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS), metavar="NAME"
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        default=list(peers.PEERS),
        choices=list(peers.PEERS),
        metavar="NAME",
        help="'ours' always runs",
    )
    parser.add_argument(
        "--torch_python",
        help="Python of an environment with torch and fbgemm-gpu-cpu; without it, neither runs",
    )
    parser.add_argument("--rounds", type=positive, default=9)
    parser.add_argument(
        "--memory_gb", type=float, default=6, help="how much all running peers may take, about"
    )
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--plot", help="where to draw them, SVG or PNG; needs matplotlib")
    options = parser.parse_args()
    if options.quick:
        options.workloads, options.rounds = ["standard"], 3
    names = [
        name
        for name in peers.PEERS
        if (name == "ours" or name in options.peers)
        and (options.torch_python or name not in peers.TORCH_PEERS)
    ]
    import tensorflow as tf

    result = {
        "tensorflow": tf.__version__,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "workloads": {},
    }
    print(f"TensorFlow {tf.__version__}, {os.cpu_count()} cores")
    for title in options.workloads:
        work = WORKLOADS[title]
        figures, floor_ms = measure(work, names, options)
        show(title, work, figures, floor_ms)
        result["workloads"][title] = {**vars(work), "floor": floor_ms, "peers": figures}
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    if options.plot:
        plot.draw(options.plot, [result], tuple(options.workloads))


if __name__ == "__main__":
    main()
