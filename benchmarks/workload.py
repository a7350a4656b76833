"""Defines the work of `embedding_step.py`'s peers in NumPy, and starts processes for benchmarks.

A step looks up the ids of a batch, combines the rows, takes a given gradient for each activation,
and updates the tables. The workload determines everything, so all processes do the same.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import numpy as np

BATCHES = 16
"""The number of batches that a peer cycles through."""
LEARNING_RATE = 0.05
INITIAL_ACCUMULATOR = 0.1
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
CHECK_STEPS = 2
IDS_VARIABLE = "EMBEDDING_STEP_IDS"
"""The environment variable that names the file of ids, int64 [tables, BATCHES, batch, ids]."""


def environment(**changes: str) -> dict[str, str]:
    """Returns this environment with `changes`, for a process that imports this checkout."""
    root = str(pathlib.Path(__file__).resolve().parent.parent)
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", **changes}


def positive(text: str) -> int:
    """Parses a positive integer from the command line."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def apart(program: str, *arguments: str, **changes: str) -> dict[str, float]:
    """Runs the Python file `program` in its own process, and returns the JSON that it prints.

    Args:
      program: path of the file.
      *arguments: words of its command line.
      **changes: variables to set in its environment.
    """
    done = subprocess.run(
        [sys.executable, program, *arguments],
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return json.loads(done.stdout)


@dataclasses.dataclass(frozen=True)
class Workload:
    """The embedding work of one training step.

    Attributes:
      tables: number of tables, one feature each.
      vocabulary: rows of a table.
      dimension: columns of a table.
      batch: number of samples.
      ids: ids per sample; their activations are averaged.
      optimizer: 'adagrad' or 'adam'.
      ordered: whether ids are in the order of their frequency, as in a sorted vocabulary.
    """

    tables: int = 26
    vocabulary: int = 100_000
    dimension: int = 16
    batch: int = 4096
    ids: int = 1
    optimizer: str = "adagrad"
    ordered: bool = False

    def ids_of(self, table: int) -> np.ndarray:
        """Returns ids by Zipf's law with exponent 1.05, int64 [BATCHES, batch, ids].

        Unless `ordered`, ids beyond the vocabulary are taken modulo its size.

        Versions of NumPy draw differently, so the other processes read the ids that the first
        process has drawn.
        """
        if IDS_VARIABLE in os.environ:
            return np.array(np.load(os.environ[IDS_VARIABLE], mmap_mode="r")[table])
        rng = np.random.default_rng(table)
        if self.ordered:
            shares = np.arange(1.0, self.vocabulary + 1) ** -1.05
            size = [BATCHES, self.batch, self.ids]
            return rng.choice(self.vocabulary, size, p=shares / shares.sum())
        drawn = rng.zipf(1.05, [BATCHES, self.batch, self.ids])
        return np.minimum(drawn, 2**62).astype(np.int64) % self.vocabulary

    def indices(self) -> np.ndarray:
        """Returns the positions of ids in a sparse [batch, ids] matrix, int64 [batch * ids, 2]."""
        places = np.indices([self.batch, self.ids], np.int64)
        return places.reshape(2, -1).T.copy()

    def gradient_of(self, table: int) -> np.ndarray:
        """Returns the gradient of the table's activation, float32 [batch, dimension]."""
        rng = np.random.default_rng(1000 + table)
        return rng.normal(size=[self.batch, self.dimension]).astype(np.float32)

    def initial(self) -> np.ndarray:
        """Returns the initial values of every table, float32 [vocabulary, dimension]."""
        places = np.arange(self.vocabulary * self.dimension, dtype=np.int64)
        values = (places % 1009).astype(np.float32) * np.float32(1e-4)
        return values.reshape(self.vocabulary, self.dimension)

    def expected(self, table: int) -> np.ndarray:
        """Returns the table after CHECK_STEPS steps on its first batch, in float64."""
        ids = self.ids_of(table)[0]
        gradient = np.repeat(self.gradient_of(table).astype(np.float64) / self.ids, self.ids, 0)
        rows, places = np.unique(ids.reshape(-1), return_inverse=True)
        g = np.zeros([len(rows), self.dimension])
        np.add.at(g, places.reshape(-1), gradient)
        whole = self.initial().astype(np.float64)
        w = whole[rows]
        if self.optimizer == "adagrad":
            accumulator = np.full_like(w, INITIAL_ACCUMULATOR)
            for _ in range(CHECK_STEPS):
                accumulator += g * g
                w -= LEARNING_RATE * g / np.sqrt(accumulator)
        else:
            m, v = np.zeros_like(w), np.zeros_like(w)
            for step in range(1, CHECK_STEPS + 1):
                m = BETA1 * m + (1 - BETA1) * g
                v = BETA2 * v + (1 - BETA2) * g * g
                rate = LEARNING_RATE * np.sqrt(1 - BETA2**step) / (1 - BETA1**step)
                w -= rate * m / (np.sqrt(v) + EPSILON)
        whole[rows] = w
        return whole

    @property
    def slots(self) -> int:
        return 1 if self.optimizer == "adagrad" else 2

    def table_bytes(self) -> int:
        """Returns the bytes of all tables and their slots."""
        return self.tables * self.vocabulary * self.dimension * 4 * (1 + self.slots)

    def row_bytes(self) -> int:
        """Returns the minimum bytes that a step reads and writes in rows at random places.

        The lookup reads the distinct rows. The update reads only their slots, because the weights
        are still in the cache, and writes weights and slots.
        """
        distinct = sum(
            np.mean([len(np.unique(batch)) for batch in self.ids_of(table)])
            for table in range(self.tables)
        )
        return int(distinct * self.dimension * 4 * 2 * (1 + self.slots))

    def stream_bytes(self) -> int:
        """Returns the minimum bytes that a step reads and writes sequentially.

        It reads ids, writes activations, and reads gradients.
        """
        samples = self.tables * self.batch
        return samples * (8 * self.ids + 2 * 4 * self.dimension)
