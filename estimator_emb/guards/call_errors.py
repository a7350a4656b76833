"""Explains the errors of an estimator's calls that do not come from the model."""

import contextlib
import traceback
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.catalog import extras
from estimator_emb.catalog.limits import HOW_TO_EMULATE, HOW_TO_OUTFEED
from estimator_emb.engine import bad_input
from estimator_emb.guards.call import Call
from estimator_emb.guards.events import Event, on
from estimator_emb.reporting import error_notes, frames

_OWN_GRAPH = (
    "Each call of an estimator has a graph of its own: make Datasets, tensors, variables, "
    "optimizers and lookup tables inside of the input_fn or model_fn that uses them, or use NumPy "
    "arrays."
)
_RETURNS = (
    "In an estimator, input_fn returns the Dataset itself. What else reads one there uses "
    "tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()."
)
_WITHOUT_TAPE = (
    "A Keras optimizer does not train in a model_fn by its minimize, and there is no tape: use an "
    "optimizer of tf.compat.v1.train, such as tf.compat.v1.train.AdamOptimizer."
)
_NO_NUMBERS = (
    "A canned classifier takes strings as labels if it is given label_vocabulary=[...]. Other "
    "strings must become numbers in input_fn, as by tf.strings.to_number."
)
_SHAPE_OF_COLUMN = (
    "The shape=[...] of a numeric_column must be the shape of a sample of its feature, without the "
    "batch, and input_fn must batch its Dataset."
)
_ADVICE = {
    "Attempting to capture an EagerTensor without building a function.": _OWN_GRAPH,
    "Encountered an Eager-defined Tensor during graph construction": _OWN_GRAPH,
    "must be from the same graph as": _OWN_GRAPH,
    "of the iterator is different from the graph": _OWN_GRAPH,
    "Cannot set `iterations` to a new Variable": _OWN_GRAPH,
    "only supports Python-style iteration in eager mode or within tf.function": _RETURNS,
    "`tape` is required when a `Tensor` loss is passed": _WITHOUT_TAPE,
    "Provided `grads_and_vars` is ((None,": _WITHOUT_TAPE,
    "Cast string to float is not supported … head/": _NO_NUMBERS,
    "Cast string to float is not supported": (
        "The model computes with a feature of strings: turn it into numbers in input_fn, as by "
        "tf.strings.to_number, or read it by a categorical column."
    ),
    "Cannot reshape a tensor with … /linear_model/": _SHAPE_OF_COLUMN,
    "Cannot reshape a tensor with … /input_layer/": _SHAPE_OF_COLUMN,
    "Cannot reshape a tensor with … dense_features": _SHAPE_OF_COLUMN,
    "Shapes ( … , 1) and ( … ,) are incompatible": (
        "If these are labels and predictions, give both one shape, as by tf.reshape(labels, [-1, "
        "1]) or tf.squeeze(logits, 1)."
    ),
    "Missing train_op.": (
        "In mode 'train', model_fn must return the op that trains the model as train_op; it "
        "returned None. minimize and apply_gradients of a Keras optimizer return None in a graph: "
        "use an optimizer of tf.compat.v1.train, or estimator_emb.keras.Adagrad."
    ),
    "Instead got <dtype: 'string'>": _NO_NUMBERS,
    "Cannot create a tensor proto whose content is larger than 2GB": (
        "An array of input_fn becomes a part of the graph, which holds at most 2 GB: read files, "
        "or use tf.compat.v1.estimator.inputs.numpy_input_fn or tf.data.Dataset.from_generator."
    ),
    ", but the requested shape has 1\n": (
        "If model_fn's loss has a value per sample, give the EstimatorSpec one number: "
        "tf.reduce_mean(loss)."
    ),
    " in record 0": (
        "Records are counted in what the op is given, mostly one line: this is not the line's "
        "number in the file."
    ),
}
"""Phrase of TensorFlow's error -> the advice that is added. In a phrase, … stands for any text."""
_RECEIVER = (
    "export_saved_model takes a function that returns a tf.estimator.export.ServingInputReceiver."
)
_ADVICE_ON_ARGUMENTS = {
    "model_fn should return an EstimatorSpec.": "Is its `return` missing?",
    "'<=' not supported between": "steps and max_steps must be numbers, or None.",
    "predict: tuple index out of range": (
        "predict yields one example at a time, so each prediction must have the batch as its first "
        "dimension. With yield_single_examples=False it yields whole batches."
    ),
    "export: … object has no attribute 'features'": _RECEIVER,
    "export: … object is not callable": _RECEIVER,
    "train: … object is not iterable": (
        "hidden_units must be a list of numbers, feature_columns a list of columns, and the hooks "
        "of an EstimatorSpec a list of hooks."
    ),
}
"""The same for errors that a line of tensorflow-estimator raises. The text begins with a method."""


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
    if isinstance(error, tf.errors.OpError):
        error._message = _advised(error.message)
    elif call.on_cores and isinstance(error, ValueError):
        if "has been marked as not fetchable" in text and HOW_TO_OUTFEED not in text:
            error.args = (f"{text} {HOW_TO_OUTFEED}", *error.args[1:])
    elif isinstance(error, RuntimeError) and "Cannot find any TPU cores" in text:
        return None if HOW_TO_EMULATE in text else RuntimeError(f"{text} {HOW_TO_EMULATE}")
    return None


@on(Event.GRAPH_FAILED, when=lambda call: True)
def known_errors(call: Call, error: Exception) -> None:
    """Adds advice to TensorFlow's errors about common mistakes.

    For example, each call of an estimator has its own graph. Tensors of another graph and eager
    tensors cannot be used in it.
    """
    text = str(error.args[0]) if error.args else ""
    advised = _advised(text)
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if frames.is_in(frame.f_code.co_filename, ("tensorflow_estimator",)):
        advised = _advised(advised, _ADVICE_ON_ARGUMENTS, f"{call.method}: ")
    if isinstance(error, AttributeError):
        with contextlib.suppress(extras.MissingExtra):
            name = extras.load("tf1", "legacy.tf_v1").advice_about_name(error)
            if name and name not in text:
                advised = f"{text}. {name}"
    if advised != text:
        error.args = (advised, *error.args[1:])


def _advised(text: str, table: Mapping[str, str] = _ADVICE, before: str = "") -> str:
    said = before + text
    found = (key for key in table if all(part in said for part in key.split(" … ")))
    advice = table.get(next(found, ""), "")
    return f"{text.rstrip()}\n{advice}" if advice and advice not in text else text
