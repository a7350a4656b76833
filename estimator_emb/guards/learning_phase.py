"""Has Keras layers that are called without `training` train in a training."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals import patches
from estimator_emb.guards.guard import Call, Guard, ModelBatch


class LearningPhase(Guard):
    """Sets Keras's learning phase of the graph, as `model_to_estimator` does.

    Without it, Dropout is off and BatchNormalization uses its moving averages in a graph. The
    program may set another one in its model_fn.
    """

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session and call.method == "train"

    @contextlib.contextmanager
    def around(self, batch: ModelBatch) -> Iterator[Any]:
        with contextlib.ExitStack() as until_its_end:
            with patches.without_warnings():  # It is deprecated; today's Keras has no successor.
                # After `clear_session`, Keras would keep the graph of a phase that stays set.
                until_its_end.enter_context(tf.keras.backend.learning_phase_scope(1))
            yield
