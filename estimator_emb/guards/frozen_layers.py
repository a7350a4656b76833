"""Warns about Keras layers with trainable=False that a TensorFlow 1 optimizer trains anyway."""

import contextlib
import inspect
import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_emb.engine.ordering import accesses
from estimator_emb.guards.checks import run_ops
from estimator_emb.guards.guard import Call, Guard, ModelBatch
from estimator_emb.reporting import console
from estimator_emb.reporting.text_columns import some_of


class FrozenLayers(Guard):
    """Records which Keras layer creates each variable while model_fn runs."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_graph and call.method == "train"

    def __init__(self, graph: Any):
        super().__init__(graph)
        self._made: list[tuple[Any, Any]] = []

    def around(self, batch: ModelBatch) -> contextlib.AbstractContextManager[Any]:
        return tf.variable_creator_scope(self._note)

    def _note(self, make: Callable[..., Any], **kwargs: Any) -> Any:
        variable = make(**kwargs)
        layer = _layer_that_adds_weights()
        if layer is not None:
            self._made.append((layer, variable))
        return variable

    def after(self, spec: Any) -> Any:
        made, self._made = self._made, []
        if getattr(spec, "train_op", None) is None or tf.distribute.has_strategy():
            return spec
        frozen = [(layer, one) for layer, one in made if one.trainable and not layer.trainable]
        if not frozen:
            return spec
        run = run_ops.leading_to(spec.train_op)
        graph = tf.compat.v1.get_default_graph()
        written = {
            one.name
            for one in accesses.variables_of(graph)
            if not run.keys().isdisjoint(one.writes)
        }
        trained = [(layer, one) for layer, one in frozen if one.op.name in written]
        if trained:
            layers = some_of(list(dict.fromkeys(layer.name for layer, _ in trained)))
            console.say_once(
                f"trainable=False does not keep Keras layers ({layers}) from training: train_op "
                f"updates {some_of([one.op.name for _, one in trained])}, for an optimizer of "
                "tf.compat.v1.train takes all of tf.compat.v1.trainable_variables(). Pass the "
                "others to minimize as var_list, such as model.trainable_variables.",
                self.call.model_dir,
                logging.WARNING,
            )
        return spec


def _layer_that_adds_weights() -> Any:
    """Returns the Keras layer that is adding a weight, found on the call stack, if any."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "add_weight":
            layer = frame.f_locals.get("self")
            return layer if isinstance(layer, tf.keras.layers.Layer) else None
        frame = frame.f_back
    return None
