"""Makes Keras layers that are called without `training` use training mode in a training."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals import patches
from estimator_emb.guards.guard import Call, Guard, ModelBatch


class LearningPhase(Guard):
    """Sets Keras's learning phase for the graph, as `model_to_estimator` does.

    Without it, Dropout is off and BatchNormalization uses its moving averages in a graph. The
    program may set another phase in its model_fn.
    """

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session and call.method == "train"

    @contextlib.contextmanager
    def around(self, batch: ModelBatch) -> Iterator[Any]:
        with contextlib.ExitStack() as until_its_end:
            with patches.without_warnings():  # It is deprecated, but has no replacement.
                # If the phase stayed set, Keras would keep its graph even after `clear_session`.
                until_its_end.enter_context(tf.keras.backend.learning_phase_scope(1))
            yield
