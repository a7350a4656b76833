"""Measures the cost of `import estimator_emb`, compared with the import of TensorFlow.

    python benchmarks/importing.py [--rounds=7]

Each import runs in its own process, and the imports take turns. The figures are medians:

  wall, cpu   milliseconds of the process, with Python's own start
  ratio       CPU time divided by the CPU time of `import tensorflow` alone
  adds        megabytes on disk of the packages that pip installs for estimator_emb, without the
              packages that it installs for TensorFlow too
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from importlib import metadata

from packaging.requirements import Requirement

IMPORTS = {
    "tensorflow": "import tensorflow",
    "tensorflow, its Keras 2": "import tensorflow as tf; tf.keras.layers",
    "estimator_emb": "import estimator_emb",
}
QUIET = {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


def measure(program: str) -> tuple[float, float]:
    """Returns the milliseconds, wall and CPU, of a process that runs a program."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env={**os.environ, **QUIET},
        stderr=subprocess.DEVNULL,
    )
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1e3 * wall, 1e3 * cpu


def needed(package: str) -> set[str]:
    """Returns a package, and all packages that pip installs with it."""
    found, left = set(), [package]
    while left:
        name = left.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            requires = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        asked = [Requirement(text) for text in requires]
        left += [one.name for one in asked if not one.marker or one.marker.evaluate({"extra": ""})]
    return found


def megabytes(package: str) -> float:
    """Returns the size of a package on disk, in megabytes."""
    files = metadata.files(package) or []
    sizes = [file.locate().stat().st_size for file in files if file.locate().is_file()]
    return sum(sizes) / 1e6


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="See the text at the top of the file.")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in IMPORTS}
    for _ in range(arguments.rounds):
        for name, program in IMPORTS.items():
            taken[name].append(measure(program))
    alone = statistics.median(cpu for _, cpu in taken["tensorflow"])
    print(f"{'import':<26}{'wall':>8}{'cpu':>8}{'ratio':>8}")
    for name, pairs in taken.items():
        wall, cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"{name:<26}{wall:8.0f}{cpu:8.0f}{cpu / alone:8.2f}")
    added = sorted(needed("estimator-emb") - needed("tensorflow") - {"estimator-emb"})
    total = sum(megabytes(name) for name in added)
    print(f"adds {total:.0f} MB: {', '.join(f'{name} {megabytes(name):.1f}' for name in added)}")


if __name__ == "__main__":
    main()
