"""Stops predictions from reading a batch ahead unless the program asks for it.

tf.data adds a prefetch to the end of an input. A generator that waits for a question would then be
asked for the next question before the current answer is out. An emulated TPU reads ahead, as a TPU
does.
"""

from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals import patches
from estimator_emb.guards.checks.program_checks import DATASETS
from estimator_emb.guards.guard import Call, Guard, Runs


class LatePredictions(Guard):
    """Disables the prefetch that tf.data adds, unless the dataset's options set it."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.method == "predict" and call.runs in (Runs.PLAIN, Runs.LOCAL)

    def returned(self, owner: str, value: Any) -> Any:
        if not isinstance(value, DATASETS):
            return value
        # In a graph, TensorFlow warns that a dataset made elsewhere may have other options.
        with patches.without_warnings():
            asked = value.options().experimental_optimization.inject_prefetch
        if asked is not None:
            return value
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        return value.with_options(options)
