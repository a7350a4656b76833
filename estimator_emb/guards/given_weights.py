"""Rejects weights that Keras sets in its own session, because a training never sees them."""

from typing import Any

import tensorflow as tf

from estimator_emb.engine.ordering import accesses
from estimator_emb.guards.guard import Call, Guard
from estimator_emb.reporting import frames
from estimator_emb.reporting.text_columns import some_of


class GivenWeights(Guard):
    """Finds variables to which Keras has assigned a fed value."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_graph and call.method == "train"

    def after(self, spec: Any) -> Any:
        given = [op for op in tf.compat.v1.get_default_graph().get_operations() if _is_given(op)]
        if given:
            names = some_of(list(dict.fromkeys(op.inputs[0].op.name for op in given)))
            raise ValueError(
                f"model_fn gives values to {names} that no training gets: Keras sets them in a "
                "session of its own. weights=, set_weights, load_weights and "
                "tf.keras.backend.set_value do so. Give the layer an initializer, such as "
                "tf.keras.initializers.Constant(values), or begin from a checkpoint by "
                f"warm_start_from. {frames.made_by(given[0])}".rstrip()
            )
        return spec


def _is_given(op: tf.Operation) -> bool:
    if op.type not in accesses.PLAIN or op.inputs[1].op.type != "Placeholder":
        return False
    files = [one.filename for one in frames.traceback_of(op)]
    # tensorflow-estimator starts a converted Keras model from a checkpoint with its weights.
    converted = any(file.endswith("keras_lib.py") for file in files)
    return not converted and any(frames.is_in(file, frames.KERAS) for file in files)
