"""Measures trainings that read files with the columns of the Criteo data, 26 of them strings.

    python benchmarks/from_files.py [--models dlrm wdl] [--formats csv tfrecord]
        [--batches 512 4096] [--rows=65536] [--real=FILE] [--rounds=5] [--samples=40960]
        [--stock_python=VENV/bin/python] [--torch_python=VENV/bin/python]

It writes a file of random rows and trains from it. With --real it draws the rows from FILE, which
must have the header and columns of the Criteo data. The models are DLRM (512-256-64-16, 512-256-1)
and wide and deep (1024-512-256). Both have 26 tables of 10,000 x 16, with hash buckets of strings
as rows. `files_program.py` describes the peers:

  ours          trains from the file with `TPUEstimator`
  memory        trains with `TPUEstimator` from ids in memory
  dense         trains the dense layers alone, from memory
  parsing       reads and parses batches of the file, and trains nothing
  reading       reads batches without parsing them
  hooks         session calls and hooks of tensorflow-estimator without any input
  stock         tensorflow-estimator and TensorFlow's own columns, in the Python that --stock_python
                or the environment variable ESTIMATOR_EMB_STOCK_PYTHON names
  FBGEMM        the DLRM in PyTorch, from CSV, in the Python of --torch_python

The peers take turns and train `samples` samples in each round. Figures are medians over the rounds.
Ratios are computed within a round, and then are medians too:

  wall, cpu ms  per step, after the tenth
  of stock      CPU time divided by the CPU time of 'stock'
  of memory     CPU time divided by the CPU time of 'memory'

The last lines divide a step of 'ours' into parts, in milliseconds. Reading, parsing, dense layers
and hooks are differences of the CPU times above. Strings to ids, conversion and embedding are from
TensorFlow's trace of kernels on one thread, and grow with other work on the machine. 'rest' is
everything else, such as starting ops.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import files_workload
from whole_step import HERE, Program
from workload import environment, positive

PROGRAM = "files_program.py"
OURS = ("ours", "memory", "dense", "parsing", "reading", "hooks")
STOCK = "ESTIMATOR_EMB_STOCK_PYTHON"


def programs_of(options, model: str, form: str, path: str, batch: int) -> dict[str, list[str]]:
    """Returns, for each peer, its Python, its file and its arguments."""
    found = {peer: [sys.executable, PROGRAM, peer, model, form, path, batch] for peer in OURS}
    if options.stock_python:
        found["stock"] = [options.stock_python, PROGRAM, "stock", model, form, path, batch]
    if options.torch_python and model == "dlrm" and form == "csv":
        found["FBGEMM"] = [options.torch_python, "files_torch.py", path, batch]
    return {peer: list(map(str, program)) for peer, program in found.items()}


def measure(options, model: str, form: str, path: str, batch: int) -> None:
    programs = {
        peer: Program(*program)
        for peer, program in programs_of(options, model, form, path, batch).items()
    }
    versions = dict.fromkeys(program.started["version"] for program in programs.values())
    print(f"\n{model} from {form}, batch {batch}: {', '.join(versions)}", flush=True)
    wall, cpu = ({peer: [] for peer in programs} for _ in range(2))
    for _ in range(options.rounds):
        for peer, program in programs.items():
            figures = program.run(max(options.samples // batch, 1))
            wall[peer].append(1e3 * batch / figures["examples"])
            cpu[peer].append(figures["cpu"])
    for program in programs.values():
        program.stop()
    print(f"{'':14s}wall ms   cpu ms of stock of memory")
    for peer in programs:
        print(
            f"{peer:12s}{statistics.median(wall[peer]):9.2f}{statistics.median(cpu[peer]):9.2f}"
            f"{ratio(cpu, peer, 'stock'):>9s}{ratio(cpu, peer, 'memory'):>10s}"
        )
    print_parts(
        {peer: statistics.median(of_peer) for peer, of_peer in cpu.items()},
        trace(model, form, path, batch),
    )


def ratio(cpu: dict[str, list[float]], peer: str, other: str) -> str:
    if other not in cpu:
        return ""
    return f"{statistics.median(a / b for a, b in zip(cpu[peer], cpu[other], strict=True)):.2f}"


def trace(model: str, form: str, path: str, batch: int) -> dict[str, float]:
    """Returns the milliseconds of the parts of a step of 'ours', on one thread."""
    done = subprocess.run(
        [sys.executable, str(HERE / PROGRAM), "trace", model, form, path, str(batch)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return json.loads(done.stdout)


def print_parts(cpu: dict[str, float], traced: dict[str, float]) -> None:
    parts = {
        "reading": cpu["reading"] - cpu["hooks"],
        "parsing": cpu["parsing"] - cpu["reading"],
        **traced,
        "dense": cpu["dense"] - cpu["hooks"],
        "hooks": cpu["hooks"],
    }
    parts["rest"] = cpu["ours"] - sum(parts.values())
    for part, spent in parts.items():
        print(f"  {part:14s}{spent:9.2f} {spent / cpu['ours']:5.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    models, formats = ["dlrm", "wdl"], ["csv", "tfrecord"]
    parser.add_argument("--models", nargs="+", choices=models, default=models)
    parser.add_argument("--formats", nargs="+", choices=formats, default=formats)
    parser.add_argument("--batches", type=positive, nargs="+", default=[512, 4096])
    parser.add_argument("--rows", type=positive, default=1 << 16, help="of the file")
    parser.add_argument("--real", help="a file of the Criteo data with header, to draw rows from")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--samples", type=positive, default=40960, help="of each round")
    parser.add_argument(
        "--stock_python",
        default=os.environ.get(STOCK),
        help=f"Python of an environment with tensorflow-estimator; by default {STOCK}",
    )
    parser.add_argument(
        "--torch_python", help="Python of an environment with torch and fbgemm-gpu-cpu"
    )
    options = parser.parse_args()
    if not options.stock_python:
        print(f"Without --stock_python or {STOCK}, there is no comparison with stock.")
    if not options.torch_python:
        print("Without --torch_python, there is no comparison with FBGEMM.")
    with tempfile.TemporaryDirectory(prefix="from_files") as folder:
        paths = {form: pathlib.Path(folder, f"rows.{form}") for form in formats}
        files_workload.write(paths["csv"], options.rows, options.real)
        if "tfrecord" in options.formats:
            convert = [sys.executable, HERE / PROGRAM, "convert", paths["csv"], paths["tfrecord"]]
            subprocess.run(convert, env=environment(), stderr=subprocess.DEVNULL, check=True)
        for model in options.models:
            for form in options.formats:
                for batch in options.batches:
                    measure(options, model, form, paths[form], batch)


if __name__ == "__main__":
    main()
