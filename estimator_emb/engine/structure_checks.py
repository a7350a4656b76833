"""Checks that the parts of a feature's tensors fit, before anything is computed from them.

A SparseTensor or RaggedTensor consists of several tensors, and a graph does not ensure that they
match. Values and indices may differ in number. A dense shape may be negative, or larger than any
memory. Ops that read such parts fail with an error that names no feature, end the process, or
confuse the ids of different samples.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_emb.engine.bad_values import text
from estimator_emb.engine.inputs import Ids, Source, is_composite, tensors_in
from estimator_emb.engine.tables import sizes
from estimator_emb.spec.resolved import Feature, Table

Problem = tuple[tf.Tensor, Callable[[], tf.Tensor]]
"""A bool tensor, False if there is a problem, and a function that returns its error message."""


def problems(ids: Ids) -> list[Problem]:
    """Returns the possible problems in the structure of a feature and its weights, in order."""
    if ids.source is None:
        return []
    weights = f"its weights {ids.feature.weight_key}"
    possible = []
    for what, value in (("its ids", ids.source.value), (weights, ids.source.weights)):
        if is_composite(value):
            possible += part_problems(f"{ids.owner}: {what}", value)
        elif value is not None and value.shape.rank is None:
            said = text("rank", what=f"{ids.owner}: {what}")
            rank = ids.source.value.shape.rank
            possible.append((tf.equal(tf.rank(value), rank), message(said, tf.shape(value))))
    if isinstance(ids.source.value, tf.SparseTensor):
        possible += _size_problems(ids, ids.source.value.dense_shape)
    return possible


def part_problems(owner: str, value: Any) -> list[Problem]:
    """Returns the possible mismatches between the parts of a SparseTensor or RaggedTensor."""
    if isinstance(value, tf.SparseTensor):
        return _sparse_problems(owner, value)
    return _ragged_problems(owner, value)


def hold(source: Source | None, checked: tf.Tensor) -> None:
    """Makes the ops that read a feature wait for `checked`, the check of its structure."""
    if source is None or not source.readers:
        return
    for part in tensors_in([source.value, source.weights]):
        for reader in part.consumers():
            if reader.name in source.readers:
                reader._add_control_inputs([checked.op])


def most_samples(table: Table, feature: Feature) -> int:
    """Returns the largest batch size at which a feature's activations fit into memory."""
    positions = feature.max_sequence_length or 1
    # 8 bytes: an activation and its gradient, in float32.
    fitting = min(sizes.physical() // (8 * table.config.dimension), 2**31 - 1)
    return max(fitting // positions, 1)


def _sparse_problems(owner: str, value: tf.SparseTensor) -> list[Problem]:
    indices, values, shape = value.indices, value.values, value.dense_shape
    problems: list[Problem] = []
    if not shape.shape.is_fully_defined():
        said = text("sparse shape", what=owner)
        problems.append((tf.equal(tf.size(shape), 2), message(said, shape)))
    extent = tf.shape(indices, out_type=tf.int64)
    wanted = tf.stack([tf.size(values, out_type=tf.int64), 2])
    # False, not an error, if the indices have another rank.
    same = tf.raw_ops.Equal(x=extent, y=wanted, incompatible_shape_error=False)
    fits = tf.reduce_all(same)
    for tensor, rank in ((indices, 2), (values, 1)):
        if tensor.shape.rank is None:
            fits &= tf.equal(tf.rank(tensor), rank)
    said = text("indices", what=owner)
    problems.append((fits, message(said, tf.size(values), extent)))
    return problems


def _size_problems(ids: Ids, shape: tf.Tensor) -> list[Problem]:
    most = most_samples(ids.table, ids.feature)
    held = tf.reduce_all(shape[:1] <= most)
    return [
        (tf.reduce_all(shape >= 0), message(text("negative", owner=ids.owner), shape)),
        (held, message(text("large", owner=ids.owner, most=most), shape)),
    ]


def _ragged_problems(owner: str, value: tf.RaggedTensor) -> list[Problem]:
    splits, count = value.row_splits, tf.shape(value.values)[0]
    # An empty list of splits has no ends, and never fits.
    fits = (
        tf.reduce_any(tf.equal(splits[:1], 0))
        & tf.reduce_any(tf.equal(splits[-1:], tf.cast(count, splits.dtype)))
        & tf.reduce_all(splits[1:] >= splits[:-1])
    )
    return [(fits, message(text("splits", what=owner), count, splits))]


def message(said: str, *values: tf.Tensor) -> Callable[[], tf.Tensor]:
    """Returns the message of a `Problem`: `said` with each {} replaced by a value."""
    return lambda: tf.strings.format(said, values) if values else tf.constant(said)
