"""Warns about Keras layers with trainable=False that a TensorFlow 1 optimizer trains anyway."""

import contextlib
import inspect
import logging
import types
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.engine.ordering import accesses
from estimator_emb.guards.checks import run_ops
from estimator_emb.guards.guard import Call, Guard, ModelBatch
from estimator_emb.reporting import console
from estimator_emb.reporting.text_columns import some_of


class FrozenLayers(Guard):
    """Records which Keras layer creates each variable while model_fn runs.

    An optimizer that the program gives its variables, as in a GAN, trains what it should.
    """

    _takes_all = False
    """Whether an optimizer of model_fn trains all trainable variables."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_graph and call.method == "train"

    def __init__(self, graph: Any):
        super().__init__(graph)
        self._made: list[tuple[Any, Any]] = []

    @contextlib.contextmanager
    def around(self, batch: ModelBatch) -> Iterator[None]:
        if tf.distribute.has_strategy():
            yield
            return
        graph = tf.compat.v1.get_default_graph()
        read = graph.get_collection

        def get_collection(name: str, scope: str | None = None) -> list[Any]:
            if name == tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES:
                self._takes_all |= _running("compute_gradients") is not None
            return read(name, scope)

        graph.get_collection = get_collection
        try:
            with tf.variable_creator_scope(self._note):
                yield
        finally:
            del graph.get_collection

    def _note(self, make: Callable[..., Any], **kwargs: Any) -> Any:
        variable = make(**kwargs)
        layer = _layer_that_adds_weights()
        if layer is not None:
            self._made.append((layer, variable))
        return variable

    def after(self, spec: Any) -> Any:
        made, self._made = self._made, []
        if not self._takes_all or getattr(spec, "train_op", None) is None:
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
    """Returns the Keras layer that is adding a weight, if any."""
    frame = _running("add_weight")
    layer = frame and frame.f_locals.get("self")
    return layer if isinstance(layer, tf.keras.layers.Layer) else None


def _running(function: str) -> types.FrameType | None:
    """Returns the innermost frame of a function of this name on the call stack, if any."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame
