"""Writes and reads the files of `from_files.py`: rows of the Criteo data, or random rows."""

import csv
import pathlib

import numpy as np
from dlrm_workload import NUMBERS, TABLES

BUCKETS = 10_000
"""The number of ids of each column of strings."""
COLUMNS = [f"c{table:02d}" for table in range(TABLES)]
MISSING = 0.1
"""The part of the random numbers and strings that are missing."""
MOST_NUMBER = 1e6


def write(path: pathlib.Path, rows: int, real: str | None) -> None:
    """Writes a CSV file without a header: a label, 13 numbers and 26 strings in each row.

    Args:
      path: path of the file.
      rows: how many rows to write.
      real: path of a file of the Criteo data with a header, to draw rows from at random. None draws
        strings of eight hexadecimal digits by Zipf's law with exponent 1.05.
    """
    rng = np.random.default_rng(0)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if real is None:
            writer.writerows(_random(rng, rows))
            return
        with open(real, newline="") as source:
            given = list(csv.reader(source))[1:]
        if any(len(row) != 1 + NUMBERS + TABLES for row in given):
            raise SystemExit(f"{real} has rows of another length than {1 + NUMBERS + TABLES}.")
        writer.writerows(given[chosen] for chosen in rng.integers(0, len(given), rows))


def _random(rng: np.random.Generator, rows: int):
    labels = (rng.random([rows, 1]) < 0.3).astype(int).astype(str)
    numbers = np.minimum(rng.lognormal(3, 2, [rows, NUMBERS]), MOST_NUMBER).astype(int).astype(str)
    drawn = np.minimum(rng.zipf(1.05, [rows, TABLES]), 2**62).astype(np.uint64)
    # Multiplying by an odd number makes digits of every kind, and keeps different values apart.
    hashed = drawn * np.uint64(0x9E3779B97F4A7C15) + np.arange(TABLES, dtype=np.uint64)
    strings = np.vectorize("{:08x}".format)(hashed >> np.uint64(32))
    cells = np.concatenate([numbers, strings], axis=1)
    cells[rng.random(cells.shape) < MISSING] = ""
    return np.concatenate([labels, cells], axis=1).tolist()


def read(path: str, buckets: int = BUCKETS):
    """Yields (label, numbers, ids) of each row, endlessly, by Python's own csv.

    As in TorchRec's reader of these data, hexadecimal digits are the id, and a missing value is 0.
    """
    while True:
        with open(path, newline="") as file:
            for label, *cells in csv.reader(file):
                numbers = [float(cell or 0) for cell in cells[:NUMBERS]]
                yield float(label), numbers, [int(cell or "0", 16) % buckets for cell in cells[13:]]
