"""Names the parts of a batch in messages, and finds parts with a wrong number of samples.

A different number alone is no error: an input may not hold samples, or the model may flatten it. It
is reported only if building a step fails.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.graphs import data_nest
from estimator_emb.reporting import error_notes
from estimator_emb.reporting.console import logger
from estimator_emb.spec.resolved import Table

REMEDY = (
    "All features and labels of a batch need the same number of samples, and on a TPU that is "
    "params['batch_size']: batch the dataset as a whole, with drop_remainder=True."
)
_OF_SHAPES = re.compile(r"\b(shapes?|dimensions?|dims?|sizes?|rank|broadcast\w*)\b", re.IGNORECASE)
"""Matches an error about the shapes of tensors."""


@contextlib.contextmanager
def compared(features: Any, labels: Any, samples: int | None) -> Iterator[None]:
    """Extends a ValueError from this context by the tensors with a wrong number of samples.

    Only errors about shapes are changed. Tensors of unknown shape are skipped. If `samples` is
    None, all tensors are skipped. A tensor is also skipped if its first dimension is a multiple of
    `samples`: the model may flatten the batch, or have it in another dimension. Without an error,
    warns about labels of 1 sample, because most losses silently broadcast them over the batch.
    """
    with error_notes.explained(explain, features, labels, samples):
        yield
    for name, size in _other_sizes({"labels": labels}, samples):
        if size == 1:
            logger.warning(
                "%s has 1 sample, %d expected: a loss may spread it over all of them. %s",
                name,
                samples,
                REMEDY,
            )


def explain(error: Exception, features: Any, labels: Any, samples: int | None) -> Any:
    """Returns a ValueError that names the tensors with a wrong number of samples, or None."""
    if not isinstance(error, ValueError):
        return None
    if "returned by input_fn must have static shape" in str(error):
        return ValueError(f"{error}{_without_shape(features, labels)}")
    if type(error) is not ValueError or not _OF_SHAPES.search(str(error)):
        return None
    structure = {"features": features, "labels": labels}
    lines = "".join(
        f"\n{name} has {size} samples, {samples} expected."
        for name, size in _other_sizes(structure, samples)
        if not (size and samples and size % samples == 0)
    )
    return ValueError(f"{error}{lines} {REMEDY}") if lines else None


def _without_shape(features: Any, labels: Any) -> str:
    return "".join(
        f"\n{name} has shape {value.shape}: batch the dataset with drop_remainder=True, and give "
        "its other dimensions sizes."
        for name, value in named({"features": features, "labels": labels})
        if isinstance(value, tf.Tensor) and not value.shape.is_fully_defined()
    )


def _other_sizes(structure: Any, samples: int | None) -> Iterator[tuple[str, int]]:
    if samples is None:
        return
    for name, value in named(structure):
        if isinstance(value, tf.Tensor) and value.shape.rank and value.shape[0] is not None:
            size = value.shape[0]
            if size != samples:
                yield name, size


def named(structure: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the path of each leaf of a structure, such as `features['x'][0]`, and the leaf."""
    if isinstance(structure, dict):
        for key, value in structure.items():
            yield from named(value, f"{name}[{key!r}]" if name else key)
    elif isinstance(structure, (list, tuple)) and not hasattr(structure, "_fields"):
        for index, value in enumerate(structure):
            yield from named(value, f"{name}[{index}]")
    elif structure is not None:
        for value in data_nest.flatten(structure):
            yield name, value


def owner(name: str, tables: Sequence[Table]) -> str:
    """Returns the name of a batch part in messages, with its feature and table if known."""
    path, of_core, core = name.partition(" of core ")
    for table in tables:
        for feature in table.features:
            whose = f"Feature {feature.key} of table {table.name}"
            if path == f"features[{feature.key!r}]":
                return f"{whose}: its ids{of_core}{core}"
            if path == f"features[{feature.weight_key!r}]":
                return f"{whose}: its weights {feature.weight_key}{of_core}{core}"
    return name
