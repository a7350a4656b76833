# SPDX-License-Identifier: Apache-2.0
"""From the features of a batch to ids: every input form becomes one.

The form is a list of occurrences: for each, its id, the segment it belongs to, and its weight. A
segment is what becomes one row of the activation: a sample, or one position of a sample's sequence.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.checks.arguments import suggestion
from estimator_emb.spec import Feature, Table

PADDING_ID = -1
"""In a dense [batch, n] id tensor, the value that stands for no id."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """A batch that was read, of all features that tables look up, and not yet checked.

    Attributes:
      ids: of each feature.
      features: what they were read from.
      size: number of samples, where it is known beforehand; another one stops the step.
    """

    ids: "list[Ids]"
    features: Mapping[str, Any]
    size: int | None


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
      uncut: int32 or int64, the ids of a sequence with those beyond its length, which must be good
        too; None where there are no others than `ids`.
      fit: how the weights fit the ids, as they came; None without weights.
      places: of ids that came as a SparseTensor; None of others, which cannot be out of place.
      came: the feature as it came; None where its form needs no check any more.
    """

    table: Table
    feature: Feature
    ids: tf.Tensor
    segments: tf.Tensor | None
    weights: tf.Tensor | None
    batch: tf.Tensor
    static_batch: int | None
    lengths: tf.Tensor | None = None
    uncut: tf.Tensor | None = None
    fit: "WeightsFit | None" = None
    places: "Places | None" = None
    came: "Came | None" = None

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
class Came:
    """A feature before anything is computed from it.

    Attributes:
      value: SparseTensor, RaggedTensor or dense tensor.
      weights: the same of its weights; None without.
      made: names of the ops that were made to read it.
    """

    value: Any
    weights: Any
    made: frozenset[str]


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


@dataclasses.dataclass(frozen=True)
class Places:
    """Where the values of a SparseTensor stand, as it came.

    Attributes:
      indices: int64 [n, 2].
      shape: int64 [2], the dense shape.
    """

    indices: tf.Tensor
    shape: tf.Tensor

    def inside(self) -> tf.Tensor:
        """Returns bool [n]: which indices are within the dense shape."""
        return tf.reduce_all((self.indices >= 0) & (self.indices < self.shape), axis=1)

    def all_inside(self) -> tf.Tensor:
        """Returns a bool scalar: whether all are, in a third of the time."""
        return (tf.reduce_min(self.indices) >= 0) & tf.reduce_all(
            tf.reduce_max(self.indices, axis=0) < self.shape
        )


def read(table: Table, feature: Feature, features: Mapping[str, Any]) -> Ids:
    """Reads one feature; what it cannot see until the step runs is left to `check`.

    Args:
      table: the table that the feature looks up.
      feature: what to read.
      features: the batch, key -> SparseTensor, RaggedTensor, or dense tensor of rank 1 (one id per
        sample) or 2 (`PADDING_ID` fills up). The values of a SparseTensor may come in any order,
        and several may stand at one index, unless it holds sequences: each counts. Values are
        int32 or int64 ids, or strings for a column that can look them up; integers for such a
        column are ids that input_fn has looked up already, as programs for a TPU do.

    Raises:
      KeyError: the feature is not in the batch.
      ValueError: its form, its dtype or its weights are unsupported.
    """
    owner = _owner(table, feature)
    before = number_of_ops()
    if feature.key not in features:
        raise KeyError(
            f"{owner} is not among the features of the batch, {sorted(features)}."
            f"{suggestion(feature.key, features)}"
        )
    value = features[feature.key]
    if not isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
        value = tf.convert_to_tensor(value)
    _check_dtype(owner, feature, value.dtype)
    weights = _weights(owner, feature, features)
    if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
        one = _read_sparse(owner, table, feature, value, weights)
    else:
        one = _read_dense(owner, table, feature, value, weights)
    return dataclasses.replace(one, came=Came(value, weights, ops_since(before)))


def number_of_ops() -> int:
    """How many ops the graph has, for `ops_since`."""
    if tf.executing_eagerly():
        return 0
    return len(tf.compat.v1.get_default_graph().get_operations())


def ops_since(before: int) -> frozenset[str]:
    """Names of the ops that the graph got since it had `before`."""
    if tf.executing_eagerly():
        return frozenset()
    operations = tf.compat.v1.get_default_graph().get_operations()
    return frozenset(operation.name for operation in operations[before:])


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
            f"{sorted(features)}.{suggestion(key, features)}"
        )
    weights = features[key]
    if not isinstance(weights, (tf.RaggedTensor, tf.SparseTensor)):
        weights = tf.convert_to_tensor(weights)
    if not (weights.dtype.is_floating or weights.dtype.is_integer):
        raise ValueError(f"{owner}: weights {key} must be numbers; got {weights.dtype.name}.")
    return weights


def _read_sparse(
    owner: str,
    table: Table,
    feature: Feature,
    value: Any,
    weights: Any,
) -> Ids:
    from_ragged = isinstance(value, tf.RaggedTensor)
    rank = value.shape.rank
    if rank not in (None, 2):
        kind = "ragged" if from_ragged else "sparse"
        raise ValueError(f"{owner}: {kind} ids must have shape [batch, n]; got {value.shape}.")
    if from_ragged:
        value = value.to_sparse()
    if weights is not None:
        if not isinstance(weights, (tf.RaggedTensor, tf.SparseTensor)):
            raise ValueError(
                f"{owner}: its ids are sparse, so its weights {feature.weight_key} must be sparse "
                "too, with the same indices; got a dense tensor."
            )
        if weights.shape.rank not in (None, 2):
            raise ValueError(
                f"{owner}: its weights {feature.weight_key} must have shape [batch, n]; got "
                f"{weights.shape}."
            )
        if isinstance(weights, tf.RaggedTensor):
            weights = weights.to_sparse()
    indices, shape = _of_rank_2(value)
    ids = value.values if value.values.shape.rank == 1 else _promised(value.values, [None])
    flat_weights, fit = None, None
    if weights is not None:
        flat_weights, fit = _fitted(ids, indices, weights.values, _of_rank_2(weights)[0])
    places = None if from_ragged else Places(indices, shape)
    rows, columns = indices[:, 0], indices[:, 1]
    if places and feature.max_sequence_length:
        # `check` says what is wrong; until then nothing may count it in another sample.
        inside = places.inside()
        rows = tf.where(inside, rows, -1)
        columns = tf.where(inside, columns, feature.max_sequence_length)
    read = _occurrences(
        table, feature, ids, rows, columns, flat_weights, shape[0], _static_batch(value)
    )
    return dataclasses.replace(read, fit=fit, places=places)


def _of_rank_2(value: tf.SparseTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Indices [n, 2] and dense shape [2]; where the graph does not say so, `check` sees to it."""
    indices, shape = value.indices, value.dense_shape
    if indices.shape.rank is None or tf.compat.dimension_value(indices.shape[1]) != 2:
        indices = _promised(indices, [None, 2])
    if not shape.shape.is_fully_defined():
        shape = _promised(shape, [2])
    return indices, shape


def _promised(tensor: tf.Tensor, shape: list[int | None]) -> tf.Tensor:
    # Not tf.ensure_shape: from it Grappler concludes that the tensor has this shape everywhere, and
    # folds the check that finds out.
    tensor = tf.identity(tensor)
    tensor.set_shape(shape)
    return tensor


def _read_dense(owner: str, table: Table, feature: Feature, value: tf.Tensor, weights: Any) -> Ids:
    rank = value.shape.rank
    if rank not in (1, 2):
        raise ValueError(
            f"{owner}: dense ids must have shape [batch] or [batch, n]; got {value.shape}."
        )
    if weights is not None:
        if isinstance(weights, (tf.RaggedTensor, tf.SparseTensor)):
            raise ValueError(
                f"{owner}: its ids are dense, so its weights {feature.weight_key} must be dense "
                f"too, of the same shape; got a {type(weights).__name__}."
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
        weights_shape = tf.shape(_promised(weights, [None] * rank), out_type=tf.int64)
        weights, fit = _fitted(flat, shape, tf.reshape(weights, [-1]), weights_shape)
    one_per_sample = rank == 1 or value.shape[1] == 1
    if table.config.combiner is None and not one_per_sample and not feature.max_sequence_length:
        raise ValueError(
            f"{owner}: its table has combiner None, so ids must have shape [batch] or [batch, 1]; "
            f"got {value.shape}."
        )
    padding: Any = "" if flat.dtype == tf.string else PADDING_ID
    if flat.dtype != tf.string and one_per_sample and not feature.max_sequence_length:
        return Ids(table, feature, flat, None, weights, shape[0], _static_batch(value), fit=fit)
    width = tf.constant(1, tf.int64) if one_per_sample else shape[1]
    kept = tf.where(tf.not_equal(flat, padding))[:, 0]
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
    """Ids or strings at (row, column) of a [batch, n] matrix; a sequence keeps its columns apart.

    Unknown strings are left out. In a sequence they are positions all the same.
    """
    limit, lengths, segments, uncut = feature.max_sequence_length, None, rows, None
    if limit:
        uncut = None if ids.dtype == tf.string else ids
        longest = tf.math.unsorted_segment_max(columns + 1, rows, batch)
        lengths = tf.clip_by_value(longest, 0, limit)
        lengths.set_shape([static_batch])
        kept = tf.less(columns, limit)
        ids, rows, columns = (tf.boolean_mask(x, kept) for x in (ids, rows, columns))
        segments = rows * limit + columns
    if ids.dtype == tf.string:
        assert feature.to_ids is not None
        ids = feature.to_ids(ids)
        known = tf.not_equal(ids, -1)
        if weights is not None:
            weights = tf.boolean_mask(weights, known)
        ids, segments = (tf.boolean_mask(x, known) for x in (ids, segments))
    return Ids(table, feature, ids, segments, weights, batch, static_batch, lengths, uncut)


def _owner(table: Table, feature: Feature) -> str:
    # Without quotes: the op that reports a problem would put a backslash before each.
    return f"Feature {feature.key} of table {table.name}"
