"""Reads the features of a batch, whatever tensors they are, into one form: occurrences of ids.

An occurrence has an id, a segment and a weight. Each segment becomes a row of the activation. The
segment is a sample or, in a sequence feature, a position of a sample's sequence.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from estimator_emb.reporting.suggestions import suggestion
from estimator_emb.spec.resolved import Feature, Table

PADDING_ID = -1
"""Marks a position without an id in a dense [batch, n] tensor of ids."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """All features of a batch that look up tables, before they are checked.

    Attributes:
      given: the features as input_fn gave them, before integers become strings.
      size: the number of samples that the batch must have. Optional.
    """

    sources: "list[Source]"
    given: Mapping[str, Any]
    size: int | None

    @property
    def ids(self) -> "list[Ids]":
        return [source.ids for source in self.sources]


@dataclasses.dataclass(frozen=True)
class Ids:
    """A feature's occurrences in a batch.

    Attributes:
      ids: int32 or int64 [n].
      segments: int64 [n], the segment of each occurrence. None means i for occurrence i.
      weights: float32 [n]. None means that each is 1.
      batch: int64 scalar, number of samples.
      static_batch: number of samples, if the graph fixes it.
      lengths: int64 [batch], length of each sample's sequence, only for a sequence feature.
      uncut: int32 or int64, all ids of a sequence feature. `ids` has only the ids within the
        maximum length, but all must be good.
      fit: how the weights matched the ids when they were read, if there are weights.
      places: the positions of a SparseTensor's ids. Other ids cannot be misplaced.
      source: the feature that was read, if its structure is not checked yet.
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
    places: "SparsePlaces | None" = None
    source: "Source | None" = None

    @property
    def owner(self) -> str:
        """The feature and its table, as messages name them."""
        return _owner(self.table, self.feature)

    @property
    def segments_per_sample(self) -> int:
        return self.feature.max_sequence_length or 1

    @property
    def samples(self) -> tf.Tensor:
        """The sample of each occurrence, int64 [n]."""
        if self.segments is None:
            return tf.range(self.batch)
        return self.segments // self.segments_per_sample


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """A feature as it came in the batch, before anything is computed from it.

    Attributes:
      looked_up: True if a column has looked up the ids. Then `PADDING_ID` always means no id.
      drop: leaves bad ids out of `ids`. None makes bad ids errors.
      places: the positions of a SparseTensor's values, including values without an id.
      readers: the names of the ops that were created to read the ids and weights.
    """

    table: Table
    feature: Feature
    value: Any
    weights: Any
    looked_up: bool = False
    drop: Callable[[Ids], Ids] | None = None
    places: "SparsePlaces | None" = None
    readers: set[str] = dataclasses.field(default_factory=set, init=False)

    @functools.cached_property
    def ids(self) -> Ids:
        """The occurrences of the feature. The ops that read them are created on first use."""
        with adding_ops(self.readers):
            ids = _read_sparse(self) if is_composite(self.value) else _read_dense(self)
            ids = self.drop(ids) if self.drop else ids
        return dataclasses.replace(ids, source=self)

    @property
    def owner(self) -> str:
        return _owner(self.table, self.feature)

    @property
    def static_batch(self) -> int | None:
        ragged = isinstance(self.value, tf.RaggedTensor)
        return self.ids.static_batch if ragged else _static_batch(self.value)

    @property
    def one_per_sample(self) -> bool:
        """True if each sample of a dense feature has exactly one id."""
        # Without a combiner, the hardware gets ids only, not their samples. So none may be missing.
        always = self.value.shape.rank == 1 or self.table.config.combiner is None
        may_lack = self.looked_up or self.value.dtype == tf.string
        return always and not may_lack and not self.feature.max_sequence_length


class WeightsFit(NamedTuple):
    """Whether weights fit their ids, determined before any id is dropped.

    The int32 scalars `ids` and `weights` are the numbers of ids and weights. The bool scalar
    `aligned` is False if the numbers are equal but the positions differ.
    """

    ids: tf.Tensor
    weights: tf.Tensor
    aligned: tf.Tensor


class SparsePlaces(NamedTuple):
    """The indices, int64 [n, 2] (sample, column), and dense shape of a SparseTensor, int64 [2]."""

    indices: tf.Tensor
    shape: tf.Tensor

    def inside(self) -> tf.Tensor:
        """Returns bool [n]: whether each index is within the dense shape."""
        return tf.reduce_all((self.indices >= 0) & (self.indices < self.shape), axis=1)

    def all_inside(self) -> tf.Tensor:
        """Returns a bool scalar: whether all indices are inside. Takes a third of the time."""
        return (tf.reduce_min(self.indices) >= 0) & tf.reduce_all(
            tf.reduce_max(self.indices, axis=0) < self.shape
        )


def source_of(
    table: Table,
    feature: Feature,
    features: Mapping[str, Any],
    drop: Callable[[Ids], Ids] | None = None,
) -> Source:
    """Returns a feature of a batch. Its occurrences have the order of the feature's values.

    `features`, the batch, maps keys to SparseTensors, RaggedTensors, or dense tensors of rank 1
    (one id per sample) or 2 (padded with `PADDING_ID`). The values of a SparseTensor may come in
    any order. Several values may have the same index, except in sequences, and each value counts.
    Values are int32 or int64 ids, or strings for a column that can look them up. Integers for such
    a column are ids that input_fn has looked up already, as programs for a TPU do. Off a TPU,
    `integers.as_strings` refuses them. `bad_input.checked` finds bad values.

    Raises:
      KeyError: the feature is not in the batch.
      ValueError: its form, its dtype or its weights are unsupported.
    """
    owner = _owner(table, feature)
    if feature.key not in features:
        raise KeyError(
            f"{owner} is not among the features of the batch, {sorted(features)}."
            f"{suggestion(feature.key, features)}"
        )
    value = as_tensor(features[feature.key])
    _check_dtype(owner, feature, value.dtype)
    weights = _weights(owner, feature, features)
    _check_form(owner, table, feature, value, weights)
    return Source(table, feature, value, weights, drop=drop)


def as_tensor(value: Any) -> Any:
    """Returns a value of a batch as a tensor, unless it is a SparseTensor or RaggedTensor."""
    return value if is_composite(value) else tf.convert_to_tensor(value)


def is_composite(value: Any) -> bool:
    """Returns whether a value is a SparseTensor or a RaggedTensor."""
    return isinstance(value, (tf.RaggedTensor, tf.SparseTensor))


def tensors_in(structure: Any) -> list[tf.Tensor]:
    """Returns the tensors of a structure, and skips None."""
    leaves = tf.nest.flatten(structure, expand_composites=True)
    return [leaf for leaf in leaves if leaf is not None]


def packed(structure: Any, tensors: Iterable[tf.Tensor]) -> Any:
    """Returns `structure` with the tensors that `tensors_in` returns replaced by `tensors`."""
    remaining = iter(tensors)
    leaves = tf.nest.flatten(structure, expand_composites=True)
    filled = [None if leaf is None else next(remaining) for leaf in leaves]
    return tf.nest.pack_sequence_as(structure, filled, expand_composites=True)


@contextlib.contextmanager
def adding_ops(names: set[str]) -> Iterator[None]:
    """Adds the names of the ops that are created in this context to `names`."""
    if tf.executing_eagerly():
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    yield
    names.update(operation.name for operation in graph.get_operations()[before:])


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
            f"{owner}: Cannot find weights {key} for weighted_categorical_column among the "
            f"features of the batch, {sorted(features)}.{suggestion(key, features)}"
        )
    weights = as_tensor(features[key])
    if not (weights.dtype.is_floating or weights.dtype.is_integer):
        raise ValueError(f"{owner}: weights {key} must be numbers; got {weights.dtype.name}.")
    return weights


def _check_form(owner: str, table: Table, feature: Feature, value: Any, weights: Any) -> None:
    rank = value.shape.rank
    if is_composite(value):
        if rank not in (None, 2):
            kind = "ragged" if isinstance(value, tf.RaggedTensor) else "sparse"
            raise ValueError(f"{owner}: {kind} ids must have shape [batch, n]; got {value.shape}.")
    elif rank not in (1, 2):
        raise ValueError(
            f"{owner}: dense ids must have shape [batch] or [batch, n]; got {value.shape}."
            f"{' Was the dataset batched twice?' if rank == 3 else ''}"
        )
    if weights is not None:
        _check_weights(owner, feature.weight_key, value, weights)
    one_each = is_composite(value) or rank == 1 or value.shape[1] == 1
    if table.config.combiner is None and not one_each and not feature.max_sequence_length:
        raise ValueError(
            f"{owner}: its table has combiner None, so ids must have shape [batch] or [batch, 1]; "
            f"got {value.shape}."
        )


def _check_weights(owner: str, key: str | None, value: Any, weights: Any) -> None:
    sparse = is_composite(value)
    if sparse and not is_composite(weights):
        raise ValueError(
            f"{owner}: its ids are sparse, so its weights {key} must be sparse too, with the same "
            "indices; got a dense tensor."
        )
    if not sparse and is_composite(weights):
        raise ValueError(
            f"{owner}: its ids are dense, so its weights {key} must be dense too, of the same "
            f"shape; got a {type(weights).__name__}."
        )
    if sparse and weights.shape.rank not in (None, 2):
        raise ValueError(
            f"{owner}: its weights {key} must have shape [batch, n]; got {weights.shape}."
        )
    if not sparse and not weights.shape.is_compatible_with(value.shape):
        raise ValueError(
            f"{owner}: weights {key} must have the shape of the ids, {value.shape}; got "
            f"{weights.shape}."
        )


def _read_sparse(source: Source) -> Ids:
    value, weights = source.value, source.weights
    from_ragged = isinstance(value, tf.RaggedTensor)
    if from_ragged:
        value = value.to_sparse()
    if isinstance(weights, tf.RaggedTensor):
        weights = weights.to_sparse()
    indices, shape = _as_rank_2(value)
    ids = value.values if value.values.shape.rank == 1 else _promised(value.values, [None])
    flat_weights, fit = None, None
    if weights is not None:
        flat_weights, fit = _fitted(ids, indices, weights.values, _as_rank_2(weights)[0])
    places = None if from_ragged else source.places or SparsePlaces(indices, shape)
    rows, columns = indices[:, 0], indices[:, 1]
    if places and (limit := source.feature.max_sequence_length):
        # A misplaced id must not count in another sample until `bad_input.checked` reports it.
        inside = places.inside()
        rows = tf.where(inside, rows, -1)
        columns = tf.where(inside, columns, limit)
    return _occurrences(
        source, ids, rows, columns, flat_weights, shape[0], _static_batch(value), fit, places
    )


def _as_rank_2(value: tf.SparseTensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns indices [n, 2] and dense shape [2]. `bad_input.checked` verifies both shapes."""
    return _promised(value.indices, [None, 2]), _promised(value.dense_shape, [2])


def _promised(tensor: tf.Tensor, shape: list[int | None]) -> tf.Tensor:
    # Not tf.ensure_shape: from it, Grappler would conclude that the tensor always has this shape,
    # and would fold the check.
    tensor = tf.identity(tensor)
    tensor.set_shape(shape)
    return tensor


def _read_dense(source: Source) -> Ids:
    value, weights = source.value, source.weights
    rank = value.shape.rank
    shape = tf.shape(value, out_type=tf.int64)
    flat = value if rank == 1 else tf.reshape(value, [-1])
    fit = None
    if weights is not None:
        # Weights of another shape could have the right count, but belong to other samples.
        weights_shape = tf.shape(_promised(weights, [None] * rank), out_type=tf.int64)
        weights, fit = _fitted(flat, shape, tf.reshape(weights, [-1]), weights_shape)
    if source.one_per_sample:
        is_known = value.shape.is_fully_defined()  # A constant takes fewer ops.
        batch = tf.constant(value.shape[0], tf.int64) if is_known else shape[0]
        found = flat, None, weights, batch, _static_batch(value)
        return Ids(source.table, source.feature, *found, fit=fit)
    padding: Any = "" if flat.dtype == tf.string else PADDING_ID
    one_wide = rank == 1 or value.shape[1] == 1
    width = tf.constant(1, tf.int64) if one_wide else shape[1]
    kept = tf.where(tf.not_equal(flat, padding))[:, 0]
    return _occurrences(
        source,
        tf.gather(flat, kept),
        kept // width,
        kept % width,
        None if weights is None else tf.gather(weights, kept),
        shape[0],
        _static_batch(value),
        fit,
    )


def _fitted(
    ids: tf.Tensor, places: tf.Tensor, weights: tf.Tensor, weight_places: tf.Tensor
) -> tuple[tf.Tensor, WeightsFit]:
    """Returns the weights as float32 [n], matching the ids, and a `WeightsFit`.

    If the counts differ, the weights are zeros: no op fails before `bad_input.checked` reports it.
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
    # A dimension may be a tf.compat.v1.Dimension, an object that is never None.
    return tf.compat.dimension_value(value.shape[0])


def _occurrences(
    source: Source,
    ids: tf.Tensor,
    rows: tf.Tensor,
    columns: tf.Tensor,
    weights: tf.Tensor | None,
    batch: tf.Tensor,
    static_batch: int | None,
    fit: WeightsFit | None,
    places: SparsePlaces | None = None,
) -> Ids:
    """Returns the occurrences of ids or strings at (row, column) of a [batch, n] matrix.

    A segment is a row or, in a sequence feature, an element of the matrix. Unknown strings are left
    out, but keep their position in a sequence.
    """
    feature, lengths, segments, uncut = source.feature, None, rows, None
    limit = feature.max_sequence_length
    if limit:
        uncut = None if ids.dtype == tf.string else ids
        longest = tf.math.unsorted_segment_max(columns + 1, rows, batch)
        lengths = tf.clip_by_value(longest, 0, limit)
        lengths.set_shape([static_batch])
        # Not tf.boolean_mask, which would search the positions again for each part.
        kept = tf.where(tf.less(columns, limit))[:, 0]
        ids, rows, columns = (tf.gather(part, kept) for part in (ids, rows, columns))
        segments = rows * limit + columns
    if ids.dtype == tf.string:
        assert feature.to_ids is not None
        ids = feature.to_ids(ids)
        known = tf.where(tf.not_equal(ids, -1))[:, 0]
        if weights is not None:
            weights = tf.gather(weights, known)
        ids, segments = (tf.gather(part, known) for part in (ids, segments))
    given = ids, segments, weights, batch, static_batch, lengths, uncut, fit, places
    return Ids(source.table, feature, *given)


def _owner(table: Table, feature: Feature) -> str:
    # Without quotes, because the op that reports a problem escapes quotes with backslashes.
    return f"Feature {feature.key} of table {table.name}"
