# SPDX-License-Identifier: Apache-2.0
"""Whole training programs: DLRM through TPUEstimator, and as it was written without it.

    python benchmarks/whole_step.py [--steps=40] [--rounds=3]

`dlrm.py` describes both. Each line is a process of its own; they run in turns, and the last line is
the median of the ratios of neighbours.

  start s       from the start of the process to the end of the first step: imports, graph, tables
  examples/s    in the steps after the tenth
  cpu ms        user and system time of a step
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def run(peer: str, steps: int) -> dict[str, float]:
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, str(HERE / "dlrm.py"), peer, str(steps)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ratios = []
    for turn in range(options.rounds):
        found = {}
        for peer in ("ours", "legacy"):
            found[peer] = one = run(peer, options.steps)
            if not turn and peer == "ours":
                print(f"TensorFlow {one['tensorflow']}\n        start s examples/s   cpu ms")
            print(
                f"{peer:8s}{one['start']:7.1f} {one['examples']:10,.0f} {one['cpu']:8.1f}",
                flush=True,
            )
        ratios.append([found["ours"][k] / found["legacy"][k] for k in ("start", "examples", "cpu")])
    start, examples, cpu = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(f"ratio   {start:7.2f} {examples:10.2f} {cpu:8.2f}")


if __name__ == "__main__":
    main()
