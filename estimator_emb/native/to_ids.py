"""Turns strings, and integers that columns look up, into ids by a single op for all features.

TensorFlow's ops still convert sequences, weighted and ragged features, and columns of other kinds
than TensorFlow's own. They do so for each feature, where `engine.inputs` reads its ids. The op uses
the vocabulary tables of TensorFlow's ops.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.column_classes import (
    HashedCategoricalColumn,
    IdentityCategoricalColumn,
    VocabularyFileCategoricalColumn,
    VocabularyListCategoricalColumn,
)
from estimator_emb.engine.inputs import Batch, Source, SparsePlaces, adding_ops, as_tensor
from estimator_emb.spec.column_ids import ColumnLookup
from estimator_emb.spec.tf_config import SERVER_JOB

_HASH, _VOCABULARY, _IDENTITY = range(3)  # The enum Kind in to_ids.cc.
_DTYPES = (tf.string, tf.int32, tf.int64)


@dataclasses.dataclass(frozen=True)
class _Conversion:
    """How a feature's values become ids. The attributes have the meaning of the op's attributes."""

    value: Any
    kind: int
    buckets: int
    otherwise: int = -1
    vocabulary: tf.Tensor | None = None

    @property
    def sparse(self) -> bool:
        return isinstance(self.value, tf.SparseTensor)

    @property
    def placed(self) -> bool:
        """True if a sparse feature may have values without an id. These values are left out."""
        misses = self.kind == _VOCABULARY and not self.buckets and self.otherwise == -1
        return self.sparse and misses

    @property
    def places(self) -> SparsePlaces | None:
        """The positions of all values, if ids may be missing."""
        if not self.placed:
            return None
        return SparsePlaces(self.value.indices, self.value.dense_shape)

    @property
    def same(self) -> tuple[Any, ...]:
        """A key that two features share only if they have the same ids."""
        vocabulary = None if self.vocabulary is None else self.vocabulary.name
        return id(self.value), self.kind, self.buckets, self.otherwise, vocabulary


def converted(ops: Any, batch: Batch) -> Batch:
    """Returns `batch` with ids for the values of the features that the op supports."""
    conversions = [_conversion(source, batch.given) for source in batch.sources]
    different = list({one.same: one for one in conversions if one is not None}.values())
    if not different:
        return batch
    ids, kept = ops.host_tables_to_ids(
        values=[one.value.values if one.sparse else one.value for one in different],
        vocabularies=[one.vocabulary for one in different if one.vocabulary is not None],
        places=[one.value.indices for one in different if one.placed],
        N=len(different),
        kinds=[one.kind for one in different],
        buckets=[one.buckets for one in different],
        otherwise=[one.otherwise for one in different],
        padded=[not one.sparse for one in different],
        placed=[one.placed for one in different],
    )
    results, places = {}, iter(kept)
    for one, of_one in zip(different, ids, strict=True):
        if one.sparse:
            indices = next(places) if one.placed else one.value.indices
            of_one = tf.SparseTensor(indices, of_one, one.value.dense_shape)
        results[one.same] = of_one
    sources = [
        source
        if one is None
        else Source(
            source.table, source.feature, results[one.same], None, looked_up=True, places=one.places
        )
        for source, one in zip(batch.sources, conversions, strict=True)
    ]
    return dataclasses.replace(batch, sources=sources)


def _conversion(source: Source, given: Mapping[str, Any]) -> _Conversion | None:
    feature = source.feature
    if feature.max_sequence_length or source.weights is not None or source.drop:
        return None
    if source.value.dtype != tf.string:
        return None  # The values are ids.
    value = as_tensor(given[feature.key])
    lookup = feature.to_ids if value.dtype == tf.string else feature.integers_to_ids
    if isinstance(value, tf.RaggedTensor) or value.dtype not in _DTYPES:
        return None
    column: Any = lookup.column if isinstance(lookup, ColumnLookup) else None
    kind = type(column)
    if kind is HashedCategoricalColumn:
        return _Conversion(value, _HASH, column.hash_bucket_size)
    if kind is IdentityCategoricalColumn and value.dtype.is_integer:
        return _Conversion(value, _IDENTITY, column.number_buckets, column.default_value)
    if kind in (VocabularyFileCategoricalColumn, VocabularyListCategoricalColumn):
        assert feature.to_ids is not None
        created: set[str] = set()
        with adding_ops(created):
            ids = feature.to_ids(tf.constant([], tf.string))
        handles = _tables(created, ids.graph)
        if len(handles) == 1:
            args = (column.num_oov_buckets, max(column.default_value, -1))
            return _Conversion(value, _VOCABULARY, *args, handles[0])
    return None


def _tables(names: set[str], graph: tf.Graph) -> list[tf.Tensor]:
    """Returns the hash tables in which ops look values up, or [] if any is on a server."""
    operations = [graph.get_operation_by_name(name) for name in names]
    handles = [op.inputs[0] for op in operations if op.type == "LookupTableFindV2"]
    here = [tf.DeviceSpec.from_string(handle.device).job != SERVER_JOB for handle in handles]
    return handles if all(here) else []
