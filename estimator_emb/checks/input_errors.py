"""Adds the name of the feature to errors that a step raises because of its input.

A dataset encodes a SparseTensor or RaggedTensor as one variant. If its parts do not fit together,
TensorFlow fails to encode or decode it, with an error that names only an op. So the ops of each
feature are recorded here while the graph is built.
"""

import collections
import re
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.checks import batch_sizes, notes
from estimator_emb.messages import errors
from estimator_emb.private.estimator import ModeKeys
from estimator_emb.private.graphs import data_nest
from estimator_emb.spec.resolved import Table

_ALLOWED = {
    "Sparse": (
        "Each value of a SparseTensor needs one index: n values need indices of shape [n, rank] "
        "and a dense shape of shape [rank]."
    ),
    "Ragged": (
        "The row splits of a RaggedTensor must begin with 0, never decrease, and end with the "
        "number of values."
    ),
}
_MAKES = ("SerializeSparse", "SerializeManySparse", "RaggedTensorToVariant")
_TAKES_APART = ("DeserializeSparse", "RaggedTensorFromVariant")
_FROM_TENSORS = ("TensorDataset", "TensorSliceDataset")
_SHAPES = re.compile(r"[(\[](None|\d+),( ?(None|\d+),?)*[)\]]|<TensorShape.*?>")
"""Shapes in a message, whose None is no value."""
_EXPLAINED = "_estimator_emb_explained"
_NODE = re.compile(r"\[\[\{\{node ([^}]+)\}\}\]\]")
_OF_DATASET = re.compile(
    r"^(\{\{function_node [^}]+\}\} )?"
    r"(Error in user-defined function passed to .*? transformation with iterator: \S+: )?"
)


class _Reads:
    """What a graph reads.

    Attributes:
      tables: the tables that read its features.
      of_ops: op that encodes or decodes variants -> names of their features.
      in_functions: the same for ops in the functions of datasets. An error does not say in which
        function its op is.
    """

    def __init__(self) -> None:
        self.tables: Sequence[Table] = ()
        self.of_ops: dict[str, list[str]] = collections.defaultdict(list)
        self.in_functions: dict[str, list[str]] = collections.defaultdict(list)


def note_tables(tables: Sequence[Table]) -> None:
    """Records the tables that read the batches of the default graph."""
    notes.of(_Reads).tables = tables


def owner(key: str, core: int) -> str:
    """Returns what messages call `features[key]` in the batch of a core."""
    return _owner(f"features[{key!r}] of core {core}", notes.of(_Reads).tables)


def note_batch(features: Any, labels: Any = None, core: str = "") -> None:
    """Records the ops that decoded a batch of an iterator; `core` is '' or, e.g., ' of core 1'."""
    of_ops = notes.of(_Reads).of_ops
    for name, value in batch_sizes.named({"features": features, "labels": labels}):
        if isinstance(value, (tf.SparseTensor, tf.RaggedTensor)):
            for part in tf.nest.flatten(value, expand_composites=True):
                if part.op.type in _TAKES_APART:
                    of_ops[part.op.name].append(name + core)


def note_dataset(dataset: Any) -> None:
    """Records the ops of a dataset and of its input datasets."""
    reads = notes.of(_Reads)
    waiting, seen = [dataset], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        waiting += one._inputs()
        made_by = one._variant_tensor
        if hasattr(made_by, "op") and made_by.op.type in _FROM_TENSORS:
            _note(reads.of_ops, made_by.op.inputs, one.element_spec, _MAKES)
        for function in one._functions():
            graph = getattr(function.function, "graph", None)
            if not isinstance(graph, tf.Graph):
                continue  # Functions of TensorFlow 1 have none.
            _note(reads.in_functions, graph.outputs, function.output_structure, _MAKES)
            readers = [next(iter(part.consumers()), None) for part in graph.inputs]
            first = [reader and reader.outputs and reader.outputs[0] for reader in readers]
            _note(reads.in_functions, first, function._input_structure, _TAKES_APART)


def _note(
    of_ops: dict[str, list[str]], tensors: Iterable[Any], structure: Any, kinds: tuple[str, ...]
) -> None:
    # Captured tensors come last.
    for name, tensor in zip(_names(structure), tensors, strict=False):
        op = getattr(tensor, "op", None)
        if op is not None and op.type in ("Identity", "Reshape"):
            op = op.inputs[0].op
        if op is not None and op.type in kinds:
            of_ops[op.name].append(name)


def _names(structure: Any) -> list[str]:
    numbers = list(range(len(data_nest.flatten(structure))))
    numbered = data_nest.pack_sequence_as(structure, numbers)
    if isinstance(numbered, dict) and set(numbered) >= {"features", "real"}:
        whole = numbered  # Prediction on emulated cores.
    elif isinstance(numbered, tuple) and len(numbered) == 2 and not hasattr(numbered, "_fields"):
        whole = {"features": numbered[0], "labels": numbered[1]}
    else:
        whole = {"features": numbered}
    return [name for name, _ in sorted(batch_sizes.named(whole), key=lambda leaf: leaf[1])]


def explain_labels(error: Exception, mode: str, labels: Any) -> None:
    """Adds to a model_fn's error about None that input_fn returned no labels."""
    is_of_values = isinstance(error, (AttributeError, TypeError, ValueError))
    is_of_none = is_of_values and "None" in _SHAPES.sub("", str(error))
    if labels is None and mode != ModeKeys.PREDICT and is_of_none:
        error.args = (
            f"{error} In model_fn, labels is None in mode {mode!r}, for input_fn returned only "
            "features: return a Dataset of (features, labels), or both.",
        )


def explain(error: tf.errors.OpError) -> None:
    """Adds to a session's error the malformed feature, or the inputs of another batch size."""
    graph = errors.graph_of(error)
    if graph is None or hasattr(error, _EXPLAINED):  # An evaluation in a training explained it.
        return
    setattr(error, _EXPLAINED, True)
    malformed = _malformed(error, notes.of(_Reads, graph))
    if malformed:
        error._message = malformed + (f"\n\n{error.message}" if errors.is_full() else "")
        return
    of_sizes = batch_sizes.of_failed_step(error, graph)
    if not errors.is_full():
        errors.shorten(error)
    error._message += of_sizes


def _malformed(error: tf.errors.OpError, reads: _Reads) -> str | None:
    found = _NODE.search(error.message)
    if found is None:
        return None
    node = found[1]
    in_dataset = "[[IteratorGetNext" in error.message or "IteratorGetNext}}]]" in error.message
    names = reads.in_functions.get(node) if in_dataset else None
    names = names or reads.of_ops.get(node) or reads.in_functions.get(node)
    if not names:
        return None
    kind = "Sparse" if "Sparse" in node.rpartition("/")[2] else "Ragged"
    said = _OF_DATASET.sub("", errors.cause(error.message)[0]).rstrip(".")
    owners = " or ".join(dict.fromkeys(_owner(name, reads.tables) for name in names))
    return f"{owners}: malformed in its dataset. {said}. {_ALLOWED[kind]}"


def _owner(name: str, tables: Sequence[Table]) -> str:
    path, of_core, core = name.partition(" of core ")
    for table in tables:
        for feature in table.features:
            owner = f"Feature {feature.key} of table {table.name}"
            if path == f"features[{feature.key!r}]":
                return f"{owner}: its ids{of_core}{core}"
            if feature.weight_key is not None and path == f"features[{feature.weight_key!r}]":
                return f"{owner}: its weights {feature.weight_key}{of_core}{core}"
    return name
