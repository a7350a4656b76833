"""Explains TensorFlow's errors about objects made outside of input_fn and model_fn.

Each call of an estimator has its own graph. Tensors of another graph and eager tensors cannot be
used in it.
"""

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.guards.checks.program_checks import DATASETS
from estimator_emb.guards.guard import Guard
from estimator_emb.reporting import error_notes, frames

_SAYS = (
    "Attempting to capture an EagerTensor without building a function.",
    "Encountered an Eager-defined Tensor during graph construction",
    "must be from the same graph as",
    "of the iterator is different from the graph",
)
"""Phrases of TensorFlow's errors about values from another graph."""
_ITERATES = "only supports Python-style iteration in eager mode or within tf.function"

_KINDS = {
    tf.variant: ("A Dataset", "make it inside of input_fn"),
    tf.resource: (
        "A variable, an iterator, a lookup table or a random generator",
        "make it inside of the function that uses it",
    ),
}
_TENSOR = "make it inside of the function that uses it, or use a NumPy array"


class MadeOutside(Guard):
    """Names the outside object and the line that made it, as far as the error tells."""

    def building(self) -> contextlib.AbstractContextManager[Any]:
        return error_notes.explained(_explain)


def _explain(error: Exception) -> None:
    text = str(error.args[0]) if error.args else ""
    if _ITERATES in text:
        advice = (
            "In an estimator, input_fn returns the Dataset itself. What else reads one there uses "
            "tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()."
        )
    elif any(said in text for said in _SAYS):
        found = next(_outside(error), None)
        if found is None:
            return
        advice = _advice(found, frames.innermost(traceback.extract_tb(error.__traceback__)))
    else:
        return
    if advice not in text:
        error.args = (f"{text.rstrip()}\n{advice}", *error.args[1:])


def _advice(tensor: tf.Tensor, used: Any) -> str:
    what = f"A tensor of shape {tensor.shape} and dtype {tensor.dtype.base_dtype.name}"
    what, remedy = _KINDS.get(tensor.dtype, (what, _TENSOR))
    made = None if _is_eager(tensor) else frames.line_of_program(tensor.op)
    lines = [
        f"{what} was made outside of input_fn and model_fn, and each call of an estimator has a "
        f"graph of its own: {remedy}."
    ]
    lines += [f"  made by {made}"] if made else []
    lines += [f"  used by {frames.shown(used)}"] if used else []
    return "\n".join(lines)


def _outside(error: Exception) -> Iterator[tf.Tensor]:
    """Yields the outside tensors that an error's frames hold, the innermost frames first."""
    for frame, _ in reversed([*traceback.walk_tb(error.__traceback__)]):
        for value in [*frame.f_locals.values()]:
            for one in value if isinstance(value, (list, tuple)) else (value,):
                tensor = one._variant_tensor if isinstance(one, DATASETS) else one
                if isinstance(tensor, tf.Tensor) and _is_outside(tensor):
                    yield tensor


def _is_outside(tensor: tf.Tensor) -> bool:
    """Returns whether a tensor is eager, or no estimator made the first op of its graph."""
    made = () if _is_eager(tensor) else frames.traceback_of(tensor.graph.get_operations()[0])
    return not any(frames.is_in(one.filename, ("tensorflow_estimator",)) for one in made)


def _is_eager(tensor: tf.Tensor) -> bool:
    return isinstance(tensor, tf.__internal__.EagerTensor)
