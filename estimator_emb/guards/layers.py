"""Checks the Keras layers of a model_fn, which trains in a session that Keras does not know."""

import contextlib
import inspect
import logging
import re
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.engine.ordering import accesses
from estimator_emb.guards.call import Call
from estimator_emb.guards.events import Event, Facts, on
from estimator_emb.reporting import console, frames
from estimator_emb.reporting.text_columns import some_of

_PHASE = re.compile(r"(.*/)?keras_learning_phase(_\d+)?")


def _trains(call: Call) -> bool:
    return call.in_graph and call.method == "train"


@on(Event.MODEL_RETURNED, when=_trains)
def learning_phase(facts: Facts, spec: Any) -> None:
    """Warns about layers that a training calls without `training`.

    In a graph such layers follow Keras's learning phase: inference, unless the program sets it. So
    Dropout does nothing, and BatchNormalization uses its moving averages. A model without trained
    variables before the layer is a feature extractor, whose layers should not train.
    """
    phases = [op for op in facts.ops.of("PlaceholderWithDefault") if _PHASE.fullmatch(op.name)]
    if not phases or getattr(spec, "train_op", None) is None or tf.distribute.has_strategy():
        return
    found = next(_following(phases, facts, facts.ops.leading_to(spec.train_op)), None)
    if found is not None:
        console.say_once(
            "A Keras layer that is called without training= runs in inference mode, also in "
            "this training: Dropout does nothing, and BatchNormalization uses its moving "
            "averages. If the layer should train, pass it training=(mode == "
            f"tf.estimator.ModeKeys.TRAIN). {frames.made_by(found)}".rstrip(),
            facts.call.model_dir,
            logging.WARNING,
        )


def _following(phases: Sequence[tf.Operation], facts: Facts, run: Any) -> Iterator[tf.Operation]:
    """Yields ops of `run` that depend on a phase, unless all variables before them are fixed."""
    written = facts.ops.written_by(run)
    of_phase = set(phases)
    before: dict[tf.Operation, set[bool]] = {}
    """Op -> whether the variables that it depends on are written, for each variable."""
    for op in run:
        inputs = [tensor.op for tensor in op.inputs]
        before[op] = set().union(*(before.get(one, ()) for one in inputs))
        if op.type in (*accesses.VARIABLES, "VarHandleOp"):
            before[op] = {op.name in written}
        elif not of_phase.isdisjoint(inputs):
            if all(one in of_phase or one.type == "Const" for one in inputs):
                of_phase.add(op)
            elif before[op] != {False}:
                yield op


@on(Event.MODEL_RETURNED, when=_trains)
def given_weights(facts: Facts, spec: Any) -> None:
    """Rejects weights that Keras sets in its own session, because a training never sees them."""
    given = [op for op in facts.ops.of(*accesses.PLAIN) if _is_given(op)]
    if given:
        names = some_of(list(dict.fromkeys(op.inputs[0].op.name for op in given)))
        raise ValueError(
            f"model_fn gives values to {names} that no training gets: Keras sets them in a "
            "session of its own. weights=, set_weights, load_weights and "
            "tf.keras.backend.set_value do so. Give the layer an initializer, such as "
            "tf.keras.initializers.Constant(values), or begin from a checkpoint by "
            f"warm_start_from. {frames.made_by(given[0])}".rstrip()
        )


def _is_given(op: tf.Operation) -> bool:
    if op.inputs[1].op.type != "Placeholder":
        return False
    files = [one.filename for one in frames.traceback_of(op)]
    # tensorflow-estimator starts a converted Keras model from a checkpoint with its weights.
    converted = any(file.endswith("keras_lib.py") for file in files)
    return not converted and any(frames.is_in(file, frames.KERAS) for file in files)


class _Noted:
    """The variables that layers made, and whether an optimizer trains all trainable variables."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, Any]] = []
        self.takes_all = False


@on(Event.MODEL_RUNS, when=_trains)
@contextlib.contextmanager
def noted_layers(facts: Facts) -> Iterator[None]:
    """Notes which layer makes each variable while model_fn runs, for `frozen_layers`."""
    noted = facts.notes["layers"] = _Noted()
    graph = tf.compat.v1.get_default_graph()
    read = graph.get_collection

    def get_collection(name: str, scope: str | None = None) -> list[Any]:
        if name == tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES:
            noted.takes_all |= _running("compute_gradients") is not None
        return read(name, scope)

    def note(make: Callable[..., Any], **kwargs: Any) -> Any:
        variable = make(**kwargs)
        layer = _layer_that_adds_weights()
        if layer is not None:
            noted.made.append((layer, variable))
        return variable

    graph.get_collection = get_collection
    try:
        with tf.variable_creator_scope(note):
            yield
    finally:
        with contextlib.suppress(AttributeError):  # Another replica has done it.
            del graph.get_collection


@on(Event.MODEL_RETURNED, when=_trains)
def frozen_layers(facts: Facts, spec: Any) -> None:
    """Warns about layers with trainable=False that a TensorFlow 1 optimizer trains anyway.

    An optimizer that the program gives its variables, as in a GAN, trains what it should.
    """
    noted = facts.notes.pop("layers", _Noted())  # Replicas of a strategy take turns.
    if not noted.takes_all or getattr(spec, "train_op", None) is None:
        return
    if tf.distribute.has_strategy():
        return
    frozen = [(layer, one) for layer, one in noted.made if one.trainable and not layer.trainable]
    if not frozen:
        return
    written = facts.ops.written_by(facts.ops.leading_to(spec.train_op))
    trained = [(layer, one) for layer, one in frozen if one.op.name in written]
    if trained:
        layers = some_of(list(dict.fromkeys(layer.name for layer, _ in trained)))
        console.say_once(
            f"trainable=False does not keep Keras layers ({layers}) from training: train_op "
            f"updates {some_of([one.op.name for _, one in trained])}, for an optimizer of "
            "tf.compat.v1.train takes all of tf.compat.v1.trainable_variables(). Pass the "
            "others to minimize as var_list, such as model.trainable_variables.",
            facts.call.model_dir,
            logging.WARNING,
        )


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
