"""Measures the memory for exporting, converting and reading the tables of large checkpoints.

    python benchmarks/large_checkpoints.py [--gigabytes=1] [--tasks NAME ...]

It writes a checkpoint of a table with that many gigabytes, dimension 64, and a slot of the same
size. It runs each task with a quarter-size checkpoint and with the whole, in its own process.

  quarter, all  the most memory that the process had to itself, in MB, with the quarter and with the
                whole. It excludes pages of files, which the system takes back as it likes. Read
                every 5 ms. Both are about the same if memory does not depend on the table's size
  seconds       of wall time, with the whole
  written       gigabytes
"""

import argparse
import json
import pathlib
import shutil
import tempfile
import time

from large_tables import own_memory
from workload import apart

DIMENSION = 64
EXPORTS = ("npz", "parquet", "saved-model")
TASKS = (*EXPORTS, "convert", "inspect")


def write(folder: str, gigabytes: float) -> None:
    """Writes the checkpoint in pieces, as two hosts of a TPU save a table under 'mod'."""
    import numpy as np
    import tensorflow as tf

    from estimator_emb.checkpoints.files.writer import Writer

    rows = int(gigabytes * 1e9 / DIMENSION / 4) // 2 * 2
    generator = np.random.default_rng(0)
    with Writer(f"{folder}/model.ckpt-1") as out:
        out.add("global_step", tf.int64, np.array(1))
        for name in ("words", "words/Adagrad"):
            for host in range(2):
                first, end = host * rows // 2, (host + 1) * rows // 2
                for start in range(first, end, 1 << 16):
                    count = min(1 << 16, end - start)
                    values = generator.random([count, DIMENSION], np.float32)
                    out.add(name, tf.float32, values, (rows, DIMENSION), start)
        out.merge()
        out.finish()


def run(task: str, folder: str) -> dict[str, float]:
    """Runs a task in this process, and returns its figures."""
    from estimator_emb import checkpoint

    path, out = f"{folder}/model.ckpt-1", f"{folder}/{task}"
    start = time.perf_counter()
    with own_memory() as own:
        if task in EXPORTS:
            checkpoint.export(path, out, task, slots=task in EXPORTS[:2], order="mod")
        elif task == "convert":
            checkpoint.convert(path, f"{out}/model.ckpt-1", ["words"], hosts=2, source_order="mod")
        else:
            checkpoint.statistics(path)
        seconds = time.perf_counter() - start
    written = sum(one.stat().st_size for one in pathlib.Path(out).rglob("*") if one.is_file())
    return {"peak": max(own), "seconds": seconds, "written": written / 1e9}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--run", choices=("write", *TASKS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run == "write":
        write(options.folder, options.gigabytes)
        print("{}")
        return
    if options.run:
        print(json.dumps(run(options.run, options.folder)))
        return
    with tempfile.TemporaryDirectory(prefix="large_checkpoints") as folder:
        sizes = {"quarter": options.gigabytes / 4, "all": options.gigabytes}
        for name, gigabytes in sizes.items():
            of_size = ("--run=write", f"--folder={folder}/{name}", f"--gigabytes={gigabytes}")
            apart(__file__, *of_size)
        print(f"{'':<12}{'quarter':>10}{'all':>10}{'seconds':>10}{'written':>10}", flush=True)
        for task in options.tasks:
            figures = {}
            for name in sizes:
                figures[name] = apart(__file__, f"--run={task}", f"--folder={folder}/{name}")
                shutil.rmtree(f"{folder}/{name}/{task}", ignore_errors=True)
            quarter, whole = figures["quarter"], figures["all"]
            print(
                f"{task:<12}{quarter['peak']:10.0f}{whole['peak']:10.0f}{whole['seconds']:10.1f}"
                f"{whole['written']:10.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
