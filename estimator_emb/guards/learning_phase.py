"""Has Keras layers that are called without `training` train in a training."""

import contextlib
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals import patches
from estimator_emb.guards.guard import Call, Guard, ModelBatch


class LearningPhase(Guard):
    """Sets Keras's learning phase of the graph, as `model_to_estimator` does.

    Without it, Dropout is off and BatchNormalization uses its moving averages in a graph. A value
    that the program sets in its model_fn stays.
    """

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session and call.method == "train"

    def around(self, batch: ModelBatch) -> contextlib.AbstractContextManager[Any]:
        with patches.without_warnings():  # It is deprecated; today's Keras has no successor.
            tf.keras.backend.set_learning_phase(1)
        return super().around(batch)
