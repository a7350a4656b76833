"""Adds the feature's name to errors that a malformed input causes in a step.

A dataset encodes a SparseTensor or RaggedTensor as a single variant. If its parts do not fit
together, TensorFlow fails to encode or decode it. The error names only an op, so this guard records
the ops of each feature while the graph is built.
"""

import collections
import re
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.graphs import data_nest
from estimator_emb.guards.checks import batch_names
from estimator_emb.guards.checks.program_checks import DATASETS
from estimator_emb.guards.guard import Call, GraphFacts, Guard, ModelBatch
from estimator_emb.reporting import error_notes

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
_NODE = re.compile(r"\[\[\{\{node ([^}]+)\}\}\]\]")
_OF_DATASET = re.compile(
    r"^(\{\{function_node [^}]+\}\} )?"
    r"(Error in user-defined function passed to .*? transformation with iterator: \S+: )?"
)


class InputErrors(Guard):
    """Records which op reads which feature, to explain the errors of malformed inputs."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session

    def __init__(self, graph: GraphFacts):
        super().__init__(graph)
        self._of_ops: dict[str, list[str]] = collections.defaultdict(list)
        """Op that encodes or decodes variants -> names of its features."""
        self._in_functions: dict[str, list[str]] = collections.defaultdict(list)
        """The same for ops in dataset functions. An error does not name the function of an op."""

    def returned(self, owner: str, value: Any) -> Any:
        if isinstance(value, DATASETS):
            self.reads(value)
        return value

    def reads(self, dataset: Any) -> None:
        """Records the ops of a dataset and of its input datasets."""
        waiting, seen = [dataset], set()
        while waiting:
            one = waiting.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            waiting += one._inputs()
            made_by = one._variant_tensor
            if hasattr(made_by, "op") and made_by.op.type in _FROM_TENSORS:
                _note(self._of_ops, made_by.op.inputs, one.element_spec, _MAKES)
            for function in one._functions():
                graph = getattr(function.function, "graph", None)
                if not isinstance(graph, tf.Graph):
                    continue  # Functions of TensorFlow 1 have no graph.
                _note(self._in_functions, graph.outputs, function.output_structure, _MAKES)
                readers = [next(iter(part.consumers()), None) for part in graph.inputs]
                first = [reader and reader.outputs and reader.outputs[0] for reader in readers]
                _note(self._in_functions, first, function._input_structure, _TAKES_APART)

    def fed(self, features: Any, labels: Any, core: str) -> None:
        for name, value in batch_names.named({"features": features, "labels": labels}):
            if isinstance(value, (tf.SparseTensor, tf.RaggedTensor)):
                for part in tf.nest.flatten(value, expand_composites=True):
                    if part.op.type in _TAKES_APART:
                        self._of_ops[part.op.name].append(name + core)

    def before(self, batch: ModelBatch) -> ModelBatch:
        if self.call.has_spec and batch.given is not None:
            self.fed(batch.given[0], None, "")
        return batch

    def explain(self, error: Exception) -> Exception | None:
        if not isinstance(error, tf.errors.OpError):
            return None
        malformed = self._malformed(error)
        if malformed is None:
            return None
        error._message = malformed + (f"\n\n{error.message}" if error_notes.is_full() else "")
        return error

    def _malformed(self, error: tf.errors.OpError) -> str | None:
        found = _NODE.search(error.message)
        if found is None:
            return None
        node = found[1]
        in_dataset = "[[IteratorGetNext" in error.message or "IteratorGetNext}}]]" in error.message
        names = self._in_functions.get(node) if in_dataset else None
        names = names or self._of_ops.get(node) or self._in_functions.get(node)
        if not names:
            return None
        kind = "Sparse" if "Sparse" in node.rpartition("/")[2] else "Ragged"
        said = _OF_DATASET.sub("", error_notes.cause(error.message)[0]).rstrip(".")
        tables = self.call.tables
        owners = " or ".join(dict.fromkeys(batch_names.owner(name, tables) for name in names))
        return f"{owners}: malformed in its dataset. {said}. {_ALLOWED[kind]}"


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
    return [name for name, _ in sorted(batch_names.named(whole), key=lambda leaf: leaf[1])]
