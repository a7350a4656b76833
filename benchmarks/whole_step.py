"""Measures whole DLRM training programs, with TPUEstimator and without.

    python benchmarks/whole_step.py [--batches 128 1024 4096] [--starts=3] [--rounds=5]
        [--samples=40960] [--torch_python=VENV/bin/python]

`dlrm.py` and, for PyTorch, `dlrm_torch.py` describe them. 'no tables' has no embedding work, so its
distance from 'legacy' is the gain if tables cost nothing. With jax, 'PJRT, host' is 'ours' with its
model on a PJRT device, and 'PJRT, device' has its tables there too. A CPU device is a proxy for
GPUs and TPUs. The reference trains on batches of 128, the other benchmarks here on 4096. Each
program starts alone, `starts` times. Then all take turns and train `samples` samples in each of
`rounds` rounds. Figures are medians over starts and rounds. Ratios to 'legacy' are computed within
a start or round, and then are medians too.

  start s       from the start of the process to the end of the first step: imports, graph, tables
  examples/s    in the steps after the tenth
  cpu ms        user and system time of a step
"""

import argparse
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys

from workload import environment, positive

HERE = pathlib.Path(__file__).parent
PEERS = ("ours", "legacy", "no tables")
JAX_PEERS = ("PJRT, host", "PJRT, device")
TORCH_PEERS = ("FBGEMM", "EmbeddingBag", "no tables")
FIGURES = ("start", "examples", "cpu")


class Program:
    """A running program with the clock of `dlrm_workload.py`, such as `dlrm.py`."""

    def __init__(self, python: str, file: str, *arguments: str):
        self._process = subprocess.Popen(
            [python, str(HERE / file), *arguments],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.started = self._answer()

    def run(self, steps: int) -> dict[str, float]:
        assert self._process.stdin
        print(steps, file=self._process.stdin, flush=True)
        return self._answer()

    def stop(self) -> None:
        self._process.communicate()

    def _answer(self) -> dict:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self._process.args)} failed.")
        return json.loads(line)


def programs_of(options: argparse.Namespace) -> dict[str, tuple[str, str, str]]:
    """Returns, for each peer, its Python, its file and its name in that file."""
    peers = (*JAX_PEERS, *PEERS) if importlib.util.find_spec("jax") else PEERS
    found = {peer: (sys.executable, "dlrm.py", peer) for peer in peers}
    if options.torch_python:
        for peer in TORCH_PEERS:
            name = f"{peer}, torch" if peer in PEERS else peer
            found[name] = options.torch_python, "dlrm_torch.py", peer
    return found


def measure(batch: int, options: argparse.Namespace) -> None:
    peers = programs_of(options)
    measured = {peer: {figure: [] for figure in FIGURES} for peer in peers}
    for start in range(options.starts):
        programs = {peer: Program(*program, str(batch)) for peer, program in peers.items()}
        for peer, program in programs.items():
            measured[peer]["start"].append(program.started["start"])
        if not start:
            versions = dict.fromkeys(program.started["version"] for program in programs.values())
            print(f"\n{', '.join(versions)}, batch {batch}", flush=True)
        for _ in range(options.rounds):
            for peer, program in programs.items():
                figures = program.run(max(options.samples // batch, 1))
                for figure in ("examples", "cpu"):
                    measured[peer][figure].append(figures[figure])
        for program in programs.values():
            program.stop()
    print(f"{'':16s}start s examples/s   cpu ms    ratios to legacy")
    for peer in peers:
        values = [statistics.median(measured[peer][figure]) for figure in FIGURES]
        ratios = [
            statistics.median(
                value / legacy
                for value, legacy in zip(measured[peer][key], measured["legacy"][key], strict=True)
            )
            for key in FIGURES
        ]
        print(
            "{:16s}{:7.1f} {:10,.0f} {:8.1f}".format(peer, *values),
            "  {:6.2f} {:6.2f} {:6.2f}".format(*ratios),
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=positive, nargs="+", default=[128, 1024, 4096])
    parser.add_argument("--starts", type=positive, default=3)
    parser.add_argument("--rounds", type=positive, default=5, help="of each start")
    parser.add_argument("--samples", type=positive, default=40960, help="of each round")
    parser.add_argument(
        "--torch_python",
        help="Python of an environment with torch and fbgemm-gpu-cpu; without it, neither runs",
    )
    options = parser.parse_args()
    if importlib.util.find_spec("jax") is None:
        print(f"Left out, as jax is not installed: {'; '.join(JAX_PEERS)}")
    for batch in options.batches:
        measure(batch, options)


if __name__ == "__main__":
    main()
