"""Explains the errors of an estimator's calls that do not come from the model."""

import contextlib
from typing import Any

import tensorflow as tf

from estimator_emb.catalog import environment
from estimator_emb.catalog.limits import HOW_TO_OUTFEED
from estimator_emb.engine import bad_input
from estimator_emb.guards.call import Call
from estimator_emb.guards.events import Event, on
from estimator_emb.reporting import error_notes

_HOW_TO_EMULATE = (
    f" To run this program without a TPU, set the environment variable {environment.DEVICE}="
    "emulate, or pass TPUConfig(device='emulate')."
)

_OWN_GRAPH = (
    "Each call of an estimator has a graph of its own: make Datasets, tensors, variables and "
    "lookup tables inside of the input_fn or model_fn that uses them, or use NumPy arrays."
)
_RETURNS = (
    "In an estimator, input_fn returns the Dataset itself. What else reads one there uses "
    "tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()."
)
_ADVICE = {
    "Attempting to capture an EagerTensor without building a function.": _OWN_GRAPH,
    "Encountered an Eager-defined Tensor during graph construction": _OWN_GRAPH,
    "must be from the same graph as": _OWN_GRAPH,
    "of the iterator is different from the graph": _OWN_GRAPH,
    "only supports Python-style iteration in eager mode or within tf.function": _RETURNS,
}
"""Phrase of TensorFlow's error -> the advice that is added."""


def shortened(call: Call) -> contextlib.AbstractContextManager[Any]:
    """Returns a context that shortens TensorFlow's errors, and adds advice to some."""
    if call.method == "export":
        return contextlib.nullcontext()
    return error_notes.explained(_readable, call)


def _readable(error: Exception, call: Call) -> Exception | None:
    if isinstance(error, tf.errors.OpError) and not error_notes.is_full():
        error_notes.shorten(error)
    text = str(error)
    if isinstance(error, tf.errors.InvalidArgumentError):
        error._message = bad_input.readable(error.message)
    elif call.on_cores and isinstance(error, ValueError):
        if "has been marked as not fetchable" in text and HOW_TO_OUTFEED not in text:
            error.args = (f"{text} {HOW_TO_OUTFEED}", *error.args[1:])
    elif isinstance(error, RuntimeError) and "Cannot find any TPU cores" in text:
        return None if _HOW_TO_EMULATE in text else RuntimeError(text + _HOW_TO_EMULATE)
    return None


@on(Event.GRAPH_FAILED, when=lambda call: True)
def made_outside(call: Call, error: Exception) -> None:
    """Explains TensorFlow's errors about objects made outside of input_fn and model_fn.

    Each call of an estimator has its own graph. Tensors of another graph and eager tensors cannot
    be used in it.
    """
    text = str(error.args[0]) if error.args else ""
    advice = next((advice for said, advice in _ADVICE.items() if said in text), None)
    if advice is not None and advice not in text:
        error.args = (f"{text.rstrip()}\n{advice}", *error.args[1:])
