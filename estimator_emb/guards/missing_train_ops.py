"""Explains why the train_op of a model_fn may be None."""

import contextlib
from typing import Any

from estimator_emb.guards.guard import Call, Guard, ModelBatch
from estimator_emb.reporting import error_notes

_MISSING = "Missing train_op."


class MissingTrainOps(Guard):
    """Adds advice to tensorflow-estimator's error about a missing train_op."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session and call.method == "train"

    def around(self, batch: ModelBatch) -> contextlib.AbstractContextManager[Any]:
        return error_notes.explained(_explain)


def _explain(error: Exception) -> None:
    if isinstance(error, ValueError) and error.args == (_MISSING,):
        error.args = (
            f"{_MISSING} In mode 'train', model_fn must return the op that trains the model as "
            "train_op; it returned None. minimize and apply_gradients of a Keras optimizer return "
            "None in a graph: use an optimizer of tf.compat.v1.train, such as "
            "tf.compat.v1.train.AdamOptimizer, or estimator_emb.keras.Adagrad.",
        )
