"""Rejects invalid return values of input_fn."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.guards.checks.program_checks import DATASETS
from estimator_emb.guards.guard import Call, Guard

_MUST = "must return a Dataset, or features and labels"


class InputValues(Guard):
    """Raises an error if input_fn returns neither a Dataset nor features and labels."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session

    def returned(self, owner: str, value: Any) -> Any:
        if hasattr(value, "get_next"):
            raise TypeError(
                f"{owner} {_MUST}; it returned an iterator, {type(value).__name__}. Return the "
                "Dataset, or what get_next() returns."
            )
        if self.call.ours:  # A plain Estimator's model_fn may ignore what input_fn returns.
            _check(owner, value, self.call.has_spec, self.call.on_cores)
        return value


def _check(owner: str, returned: Any, needs_dict: bool, on_cores: bool) -> None:
    must = f"{owner} {_MUST}"
    if returned is None:
        raise ValueError(f"{must}; it returned None. Is its `return` missing?")
    structure = returned
    if isinstance(returned, DATASETS):
        structure = returned.element_spec
    elif inspect.isgenerator(returned) or isinstance(returned, (str, bytes)):
        raise TypeError(
            f"{must}; it returned a {type(returned).__name__}. For Python's values, see "
            "tf.data.Dataset.from_generator."
        )
    features, labels = structure, None
    if isinstance(structure, (tuple, list)):
        if len(structure) != 2 and not hasattr(structure, "_fields"):
            raise ValueError(
                f"{owner}: input_fn should return (features, labels) as a len 2 tuple; got "
                f"{len(structure)} parts."
            )
        if len(structure) == 2:
            features, labels = structure
    if needs_dict and not isinstance(features, Mapping):
        swapped = " Are features and labels swapped?" if isinstance(labels, Mapping) else ""
        raise ValueError(
            "With an EmbeddingConfigSpec, input_fn must return its features as a dict; "
            f"{owner} returned {_kind(features)}.{swapped}"
        )
    if on_cores and not isinstance(returned, DATASETS):
        leaves = tf.nest.flatten(returned)
        if any(isinstance(leaf, (np.ndarray, np.generic, int, float)) for leaf in leaves):
            raise TypeError(
                f"{owner} returned NumPy arrays or numbers, which cannot be divided over the cores "
                "of a TPU; return tensors, or a Dataset."
            )


def _kind(value: Any) -> str:
    if tf.is_tensor(value) or isinstance(value, tf.TypeSpec):
        return "a tensor"
    return f"a {type(value).__name__}"
