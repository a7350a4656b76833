# SPDX-License-Identifier: Apache-2.0
"""Explains errors of a model whose features and labels differ in their batch size."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.graphs import data_nest

logger = logging.getLogger("estimator_emb")

_REMEDY = (
    "All features and labels of a batch need the same number of samples: batch the dataset as a "
    "whole, with drop_remainder=True."
)


@contextlib.contextmanager
def explained(features: Any, labels: Any, samples: int | None) -> Iterator[None]:
    """Adds to an error which input has another number of samples than the batch.

    Nothing is refused where the model raises no error, since it may well read what is no sample, or
    flatten its labels. Labels of one sample cause a warning: most losses broadcast them silently.

    Args:
      features: tensors in any structure; those of unknown shape are passed over.
      labels: tensors likewise.
      samples: number of samples of the batch; None if the graph does not fix it.

    Raises:
      ValueError: the context raised one; a line for each such tensor is added to it.
    """
    try:
        yield
    except ValueError as error:
        sizes = list(_of_another_size({"features": features, "labels": labels}, samples))
        if not sizes or type(error) is not ValueError:
            raise
        lines = "".join(f"\n{name} has {size} samples, {samples} expected." for name, size in sizes)
        raise ValueError(f"{error}{lines} {_REMEDY}") from error
    for name, size in _of_another_size({"labels": labels}, samples):
        if size == 1:
            logger.warning(
                "%s has 1 sample, %d expected: a loss may spread it over all of them. %s",
                name,
                samples,
                _REMEDY,
            )


def _of_another_size(structure: Any, samples: int | None) -> Iterator[tuple[str, int]]:
    """Yields (name, first dimension) of each dense tensor of another batch size."""
    if samples is None:
        return
    for name, value in _named("", structure):
        if isinstance(value, tf.Tensor) and value.shape.rank and value.shape[0] is not None:
            size = value.shape[0]
            if size != samples:
                yield name, size


def _named(name: str, structure: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(structure, dict):
        for key, value in structure.items():
            yield from _named(f"{name}[{key!r}]" if name else key, value)
    elif isinstance(structure, (list, tuple)) and not hasattr(structure, "_fields"):
        for index, value in enumerate(structure):
            yield from _named(f"{name}[{index}]", value)
    elif structure is not None:
        for value in data_nest.flatten(structure):
            yield name, value
