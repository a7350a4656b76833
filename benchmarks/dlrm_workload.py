"""The model, the data and the clock of the DLRM programs `dlrm.py` and `dlrm_torch.py`."""

import json
import resource
import sys
import time

import numpy as np

TABLES, VOCABULARY, DIMENSION, NUMBERS = 26, 100_000, 16, 13
BOTTOM, TOP = (512, 256, 64, DIMENSION), (512, 256)
LEARNING_RATE, INITIAL_ACCUMULATOR = 0.01, 0.1
BATCHES = 16
WARM_UP = 10


def samples(batch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns ids [TABLES, samples], numbers [samples, NUMBERS] and labels [samples, 1].

    There are BATCHES times `batch` samples. Programs go through them again and again.
    """
    count = BATCHES * batch
    rng = np.random.default_rng(0)
    ids = np.minimum(rng.zipf(1.05, [TABLES, count]), 2**62).astype(np.int64) % VOCABULARY
    numbers = rng.normal(size=[count, NUMBERS]).astype(np.float32)
    labels = (rng.random([count, 1]) < 0.3).astype(np.float32)
    return ids, numbers, labels


def pairs() -> np.ndarray:
    """Returns the flat indices of all pairs, below the diagonal of [TABLES + 1, TABLES + 1]."""
    return np.flatnonzero(np.tril(np.ones([TABLES + 1, TABLES + 1]), -1))


class Clock:
    """Times training steps. Each line of stdin is a number of steps. Training ends with stdin."""

    def __init__(self, batch: int, started: float, version: str):
        """Begins with the warm-up.

        Args:
          batch: the number of samples in a step.
          started: the time when the process started, in seconds.
          version: what the answer to the warm-up calls the framework.
        """
        self._batch, self._started, self._version = batch, started, version
        self._left, self._start = WARM_UP + 1, 0.0
        self._warm = False

    def goes_on(self) -> bool:
        """Counts a finished step, and returns whether to train another step."""
        if not self._start:
            self._start = time.time() - self._started
        self._left -= 1
        if self._left:
            return True
        if not self._warm:
            self._warm = True
            answer = {"start": self._start, "version": self._version}
        else:
            wall, cpu = np.subtract(now(), self._since) / self._steps
            answer = {"examples": self._batch / wall, "cpu": cpu * 1e3}
        print(json.dumps(answer), flush=True)
        line = sys.stdin.readline()
        if not line:
            return False
        self._steps = self._left = int(line)
        self._since = now()
        return True


def now() -> tuple[float, float]:
    """Returns the wall-clock time and the CPU time of this process, in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), used.ru_utime + used.ru_stime
