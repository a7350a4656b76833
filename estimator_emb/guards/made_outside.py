"""Explains TensorFlow's errors about objects made outside of input_fn and model_fn.

Each call of an estimator has its own graph. Tensors of another graph and eager tensors cannot be
used in it.
"""

import contextlib
from typing import Any

from estimator_emb.guards.guard import Guard
from estimator_emb.reporting import error_notes

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


class MadeOutside(Guard):
    """Adds what to do to errors about values from another graph."""

    def building(self) -> contextlib.AbstractContextManager[Any]:
        return error_notes.explained(_explain)


def _explain(error: Exception) -> None:
    text = str(error.args[0]) if error.args else ""
    advice = next((advice for said, advice in _ADVICE.items() if said in text), None)
    if advice is not None and advice not in text:
        error.args = (f"{text.rstrip()}\n{advice}", *error.args[1:])
