"""Makes Keras layers reproducible with `RunConfig(tf_random_seed=...)`, like TensorFlow's ops."""

import contextlib
import importlib
import random
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.guards.guard import Guard, ModelBatch


class KerasSeeds(Guard):
    """Draws the seeds of Keras's initializers and Dropout from the seed of the `RunConfig`.

    Otherwise Keras draws them from Python's `random`. If the program has called
    `tf.keras.utils.set_random_seed`, Keras has its own generator, and this guard keeps it.
    """

    def around(self, batch: ModelBatch) -> contextlib.AbstractContextManager[Any]:
        seed = getattr(self.call.config, "tf_random_seed", None)
        return super().around(batch) if seed is None else _drawing(seed)


@contextlib.contextmanager
def _drawing(seed: int) -> Iterator[None]:
    package = tf.keras.Model.__module__.partition(".")[0]
    of_thread = importlib.import_module(f"{package}.src.backend")._SEED_GENERATOR
    if getattr(of_thread, "generator", None) is not None:
        yield
        return
    of_thread.generator = random.Random(seed)
    try:
        yield
    finally:
        of_thread.generator = None
