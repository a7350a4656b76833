# SPDX-License-Identifier: Apache-2.0
"""From the features of a batch to ids: every input form becomes one, and bad input is an error.

The form is a list of occurrences: for each, its id, the segment it belongs to, and its weight. A
segment is what becomes one row of the activation: a sample, or one position of a sample's sequence.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.config import Feature, Table

PADDING_ID = -1
"""In a dense [batch, n] id tensor, the value that stands for no id."""


@dataclasses.dataclass(frozen=True)
class Ids:
    """The occurrences of one feature in one batch.

    Attributes:
      table: the table they look up.
      feature: the feature they come from.
      ids: int32 or int64 [n].
      segments: int64 [n]; None means that occurrence i is segment i.
      weights: float32 [n]; None means 1.
      batch: int64 scalar, number of samples.
      static_batch: the number of samples where the graph fixes it, else None.
      lengths: int64 [batch], number of positions of each sample's sequence; None for a feature
        that is no sequence.
      fit: how the weights fit the ids, as they came; None without weights.
    """

    table: Table
    feature: Feature
    ids: tf.Tensor
    segments: tf.Tensor | None
    weights: tf.Tensor | None
    batch: tf.Tensor
    static_batch: int | None
    lengths: tf.Tensor | None = None
    fit: "WeightsFit | None" = None

    @property
    def owner(self) -> str:
        """How error messages begin."""
        return _owner(self.table, self.feature)

    @property
    def segments_per_sample(self) -> int:
        return self.feature.max_sequence_length or 1

    @property
    def samples(self) -> tf.Tensor:
        """int64 [n]: the sample each occurrence belongs to."""
        if self.segments is None:
            return tf.range(self.batch)
        return self.segments // self.segments_per_sample


@dataclasses.dataclass(frozen=True)
class WeightsFit:
    """Whether weights belong to ids, found before any id is dropped.

    Attributes:
      ids: int32 scalar, number of ids.
      weights: int32 scalar, number of weights.
      aligned: bool scalar: the weights stand where the ids do. True where the numbers differ.
    """

    ids: tf.Tensor
    weights: tf.Tensor
    aligned: tf.Tensor


def read(table: Table, feature: Feature, features: Mapping[str, Any]) -> Ids:
    """Reads one feature; what it cannot see until the step runs is left to `check`.

    Args:
      table: the table that the feature looks up.
      feature: what to read.
      features: the batch, key -> SparseTensor, RaggedTensor, or dense tensor of rank 1 (one id per
        sample) or 2 (`PADDING_ID` fills up).

    Raises:
      KeyError: the feature is not in the batch.
      ValueError: its form, its dtype or its weights are unsupported.
    """
    owner = _owner(table, feature)
    if feature.key not in features:
        raise KeyError(f"{owner} is not among the features of the batch, {sorted(features)}.")
    value = features[feature.key]
    if isinstance(value, tf.RaggedTensor):
        value = value.to_sparse()
    elif not isinstance(value, tf.SparseTensor):
        value = tf.convert_to_tensor(value)
    _check_dtype(owner, feature, value.dtype)
    weights = _weights(owner, feature, features)
    if isinstance(value, tf.SparseTensor):
        return _read_sparse(owner, table, feature, value, weights)
    return _read_dense(owner, table, feature, value, weights)


def _check_dtype(owner: str, feature: Feature, dtype: tf.DType) -> None:
    if dtype == tf.string:
        if feature.to_ids is None:
            raise ValueError(
                f"{owner}: ids must be int32 or int64; got strings. Strings need a categorical "
                "column with a vocabulary or hash buckets."
            )
    elif dtype not in (tf.int32, tf.int64):
        raise ValueError(f"{owner}: ids must be int32 or int64; got {dtype.name}.")


def _weights(owner: str, feature: Feature, features: Mapping[str, Any]) -> Any:
    key = feature.weight_key
    if key is None:
        return None
    if feature.max_sequence_length:
        raise ValueError(f"{owner}: a sequence feature takes no weights; got weight key {key}.")
    if key not in features:
        raise ValueError(
            f"{owner}: its weights {key} are not among the features of the batch, "
            f"{sorted(features)}."
        )
    weights = features[key]
    if isinstance(weights, tf.RaggedTensor):
        weights = weights.to_sparse()
    elif not isinstance(weights, tf.SparseTensor):
        weights = tf.convert_to_tensor(weights)
    if not (weights.dtype.is_floating or weights.dtype.is_integer):
        raise ValueError(f"{owner}: weights {key} must be numbers; got {weights.dtype.name}.")
    return weights


def _read_sparse(
    owner: str, table: Table, feature: Feature, value: tf.SparseTensor, weights: Any
) -> Ids:
    rank = value.shape.rank
    if rank is not None and rank != 2:
        raise ValueError(f"{owner}: sparse ids must have shape [batch, n]; got {value.shape}.")
    if weights is not None and not isinstance(weights, tf.SparseTensor):
        raise ValueError(
            f"{owner}: its ids are sparse, so its weights {feature.weight_key} must be sparse "
            "too, with the same indices; got a dense tensor."
        )
    batch = value.dense_shape[0]
    rows, columns, ids = value.indices[:, 0], value.indices[:, 1], value.values
    flat_weights, fit = None, None
    if weights is not None:
        flat_weights, fit = _fitted(ids, value.indices, weights.values, weights.indices)
    if ids.dtype == tf.string:
        assert feature.to_ids is not None
        ids = feature.to_ids(ids)
        known = tf.not_equal(ids, -1)
        if flat_weights is not None:
            flat_weights = tf.boolean_mask(flat_weights, known)
        ids, rows, columns = (tf.boolean_mask(x, known) for x in (ids, rows, columns))
    read = _occurrences(
        table, feature, ids, rows, columns, flat_weights, batch, _static_batch(value)
    )
    return dataclasses.replace(read, fit=fit)


def _read_dense(
    owner: str, table: Table, feature: Feature, value: tf.Tensor, weights: Any
) -> Ids:
    rank = value.shape.rank
    if rank not in (1, 2):
        raise ValueError(
            f"{owner}: dense ids must have shape [batch] or [batch, n]; got {value.shape}."
        )
    if weights is not None:
        if isinstance(weights, tf.SparseTensor):
            raise ValueError(
                f"{owner}: its ids are dense, so its weights {feature.weight_key} must be dense "
                "too, of the same shape; got a SparseTensor."
            )
        if not weights.shape.is_compatible_with(value.shape):
            raise ValueError(
                f"{owner}: weights {feature.weight_key} must have the shape of the ids, "
                f"{value.shape}; got {weights.shape}."
            )
    shape = tf.shape(value, out_type=tf.int64)
    flat = tf.reshape(value, [-1])
    fit = None
    if weights is not None:
        # Equal numbers in another shape would pair ids with other samples' weights.
        weights_shape = tf.shape(tf.ensure_shape(weights, [None] * rank), out_type=tf.int64)
        weights, fit = _fitted(flat, shape, tf.reshape(weights, [-1]), weights_shape)
    one_per_sample = rank == 1 or value.shape[1] == 1
    if table.config.combiner is None and not one_per_sample and not feature.max_sequence_length:
        raise ValueError(
            f"{owner}: its table has combiner None, so ids must have shape [batch] or [batch, 1]; "
            f"got {value.shape}."
        )
    if flat.dtype == tf.string:
        assert feature.to_ids is not None
        padding = tf.equal(flat, "")
        flat = tf.where(padding, tf.constant(PADDING_ID, tf.int64), feature.to_ids(flat))
    elif one_per_sample and not feature.max_sequence_length:
        return Ids(table, feature, flat, None, weights, shape[0], _static_batch(value), fit=fit)
    width = tf.constant(1, tf.int64) if one_per_sample else shape[1]
    kept = tf.where(tf.not_equal(flat, PADDING_ID))[:, 0]
    read = _occurrences(
        table,
        feature,
        tf.gather(flat, kept),
        kept // width,
        kept % width,
        None if weights is None else tf.gather(weights, kept),
        shape[0],
        _static_batch(value),
    )
    return dataclasses.replace(read, fit=fit)


def _fitted(
    ids: tf.Tensor, places: tf.Tensor, weights: tf.Tensor, weight_places: tf.Tensor
) -> tuple[tf.Tensor, WeightsFit]:
    """The weights as float32 [n], one for each id, and how they fit.

    Weights of another number than the ids become zeros here, so that no later op fails on them
    before `check` can say what is wrong.
    """
    weights = tf.cast(weights, tf.float32)
    counts = tf.size(ids), tf.size(weights)
    fitted, aligned = tf.cond(
        tf.equal(*counts),
        lambda: (tf.identity(weights), tf.reduce_all(tf.equal(places, weight_places))),
        lambda: (tf.zeros([counts[0]]), tf.constant(True)),
    )
    return tf.reshape(fitted, [-1]), WeightsFit(*counts, aligned)


def _static_batch(value: Any) -> int | None:
    # Without TensorFlow 2's behaviour a dimension is an object, which is never None.
    return tf.compat.dimension_value(value.shape[0])


def _occurrences(
    table: Table,
    feature: Feature,
    ids: tf.Tensor,
    rows: tf.Tensor,
    columns: tf.Tensor,
    weights: tf.Tensor | None,
    batch: tf.Tensor,
    static_batch: int | None,
) -> Ids:
    """Occurrences at (row, column) of a [batch, n] matrix; a sequence keeps its columns apart."""
    limit = feature.max_sequence_length
    if not limit:
        return Ids(table, feature, ids, rows, weights, batch, static_batch)
    longest = tf.math.unsorted_segment_max(columns + 1, rows, batch)
    lengths = tf.clip_by_value(longest, 0, limit)
    lengths.set_shape([static_batch])
    kept = tf.less(columns, limit)
    ids, rows, columns = (tf.boolean_mask(x, kept) for x in (ids, rows, columns))
    return Ids(
        table, feature, ids, rows * limit + columns, None, batch, static_batch, lengths
    )


def check(inputs: list[Ids], batch_size: int | None = None) -> list[Ids]:
    """`inputs`, whose use in the graph waits until all of them are found good.

    When the step runs, any of these stops it before anything is looked up or written:
    an id outside [0, vocabulary size), a weight that is NaN or infinite, another number of weights
    than of ids or weights at other places, a batch without samples, features of different batch
    sizes, or of another batch size than `batch_size`, where that is given.

    Raises:
      ValueError: a batch size that the graph fixes is not `batch_size`.
      tf.errors.InvalidArgumentError: when the step runs, naming feature, table and value.
    """
    first = inputs[0]
    for one in inputs:
        if batch_size is not None and one.static_batch not in (None, batch_size):
            raise ValueError(
                f"{one.owner} has {one.static_batch} samples, but the batch size is {batch_size}."
            )
    problems = [
        problem
        for one in inputs
        for problem in (
            _empty_batch(one),
            _other_batch(one, first),
            _wrong_batch(one, batch_size),
            _unequal_weights(one),
            _misplaced_weights(one),
            _bad_id(one),
            _bad_weight(one),
        )
        if problem is not None
    ]
    good = tf.reduce_all(tf.stack([holds for holds, _ in problems]))

    def explain() -> tf.Tensor:
        # In order: the first problem found is the one reported.
        previous: list[tf.Operation] = []
        for holds, message in problems:
            with tf.control_dependencies(previous):
                previous = [tf.raw_ops.Assert(condition=holds, data=[message()], summarize=1)]
        with tf.control_dependencies(previous):
            return tf.constant(False)

    with tf.name_scope("check_ids"):
        checked = tf.cond(good, lambda: tf.constant(True), explain)
    with tf.control_dependencies([checked]):
        return [
            dataclasses.replace(
                one,
                static_batch=one.static_batch if batch_size is None else batch_size,
                lengths=_of_size(one.lengths, batch_size),
                ids=_narrow(one),
                weights=None if one.weights is None else tf.identity(one.weights),
            )
            for one in inputs
        ]


_Problem = tuple[tf.Tensor, Callable[[], tf.Tensor]]
"""A bool tensor that holds where all is well, and the message where it does not."""


def _empty_batch(one: Ids) -> _Problem | None:
    if one.static_batch:
        return None
    return one.batch > 0, lambda: tf.constant(f"{one.owner}: the batch has no samples.")


def _other_batch(one: Ids, first: Ids) -> _Problem | None:
    if one is first:
        return None
    if one.static_batch is not None and one.static_batch == first.static_batch:
        return None
    text = f"{one.owner} has {{}} samples, but feature {first.feature.key} has {{}}."
    return (
        tf.equal(one.batch, first.batch),
        lambda: tf.strings.format(text, (one.batch, first.batch)),
    )


def _wrong_batch(one: Ids, batch_size: int | None) -> _Problem | None:
    if batch_size is None or one.static_batch == batch_size:
        return None
    text = f"{one.owner} has {{}} samples, but the batch size is {batch_size}."
    return (
        tf.equal(one.batch, batch_size),
        lambda: tf.strings.format(text, (one.batch,)),
    )


def _unequal_weights(one: Ids) -> _Problem | None:
    if one.fit is None:
        return None
    counts = one.fit.ids, one.fit.weights
    text = f"{one.owner} has {{}} ids but {{}} weights."
    return tf.equal(*counts), lambda: tf.strings.format(text, counts)


def _misplaced_weights(one: Ids) -> _Problem | None:
    if one.fit is None:
        return None
    text = f"{one.owner}: its weights stand at other indices than its ids."
    return one.fit.aligned, lambda: tf.constant(text)


def _bad_id(one: Ids) -> _Problem:
    size = tf.constant(one.table.config.vocabulary_size, one.ids.dtype)
    outside = (one.ids < 0) | (one.ids >= size)
    text = f"{one.owner}: id {{}} is outside [0, {one.table.config.vocabulary_size})."
    return (
        tf.logical_not(tf.reduce_any(outside)),
        lambda: tf.strings.format(text, (_first(one.ids, outside),)),
    )


def _bad_weight(one: Ids) -> _Problem | None:
    if one.weights is None:
        return None
    weights = one.weights
    finite = tf.math.is_finite(weights)
    text = f"{one.owner}: weight {{}} is not finite."
    return (
        tf.reduce_all(finite),
        lambda: tf.strings.format(text, (_first(weights, tf.logical_not(finite)),)),
    )


def _first(values: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    # One more element keeps this defined in a branch that runs for another feature's problem.
    some = tf.concat([tf.boolean_mask(values, chosen), tf.zeros([1], values.dtype)], axis=0)
    return some[0]


def _owner(table: Table, feature: Feature) -> str:
    # Without quotes: the op that reports a problem would put a backslash before each.
    return f"Feature {feature.key} of table {table.name}"


def _of_size(lengths: tf.Tensor | None, batch_size: int | None) -> tf.Tensor | None:
    if lengths is None or batch_size is None:
        return lengths
    return tf.ensure_shape(lengths, [batch_size])


def _narrow(one: Ids) -> tf.Tensor:
    # Half the bytes to hash and compare; the check has shown that the ids fit.
    small = one.table.config.vocabulary_size <= tf.int32.max
    return tf.cast(one.ids, tf.int32) if small else tf.identity(one.ids)
