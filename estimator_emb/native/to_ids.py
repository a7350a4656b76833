# SPDX-License-Identifier: Apache-2.0
"""Turns strings, and integers that columns look up, into ids by one op for all features.

TensorFlow's ops, which `step.inputs` creates and which then do not run, would do so feature by
feature. Vocabularies are read from the tables of these ops. Sequences, weighted and ragged features
stay with them, as do columns of other kinds than TensorFlow's own.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from estimator_emb.native import serving
from estimator_emb.private.columns import (
    HashedCategoricalColumn,
    IdentityCategoricalColumn,
    VocabularyFileCategoricalColumn,
    VocabularyListCategoricalColumn,
)
from estimator_emb.spec.columns import ColumnLookup
from estimator_emb.step.inputs import Batch, Ids, as_tensor

_HASH, _VOCABULARY, _IDENTITY = range(3)  # Kind, in to_ids.cc.
_DTYPES = (tf.string, tf.int32, tf.int64)


@dataclasses.dataclass(frozen=True)
class _Conversion:
    """How a feature's values become ids; the attributes are those of the op."""

    value: Any
    kind: int
    buckets: int
    otherwise: int = -1
    vocabulary: tf.Tensor | None = None

    @property
    def placed(self) -> bool:
        """True if a sparse feature may have values without an id, which are left out."""
        sparse = isinstance(self.value, tf.SparseTensor)
        return sparse and self.kind == _VOCABULARY and not self.buckets and self.otherwise == -1

    @property
    def same(self) -> tuple[Any, ...]:
        """What two features share only if they have the same ids."""
        vocabulary = None if self.vocabulary is None else self.vocabulary.name
        return id(self.value), self.kind, self.buckets, self.otherwise, vocabulary


def converted(ops: Any, batch: Batch) -> dict[str, Any]:
    """Returns the ids of the features that the op serves, by key: int64, in the form of the values.

    In a dense tensor, -1 stands for no id.
    """
    if batch.dropped:
        return {}
    found = {ids.feature.key: _conversion(ids, batch) for ids in batch.ids}
    of_key = {key: one for key, one in found.items() if one is not None}
    different = list({one.same: one for one in of_key.values()}.values())
    if not different:
        return {}
    sparse = [isinstance(one.value, tf.SparseTensor) for one in different]
    ids, kept = ops.host_tables_to_ids(
        values=[
            one.value.values if is_sparse else one.value
            for one, is_sparse in zip(different, sparse, strict=True)
        ],
        vocabularies=[one.vocabulary for one in different if one.vocabulary is not None],
        places=[one.value.indices for one in different if one.placed],
        N=len(different),
        kinds=[one.kind for one in different],
        buckets=[one.buckets for one in different],
        otherwise=[one.otherwise for one in different],
        padded=[not is_sparse for is_sparse in sparse],
        placed=[one.placed for one in different],
    )
    results, places = {}, iter(kept)
    for one, of_one in zip(different, ids, strict=True):
        if isinstance(one.value, tf.SparseTensor):
            indices = next(places) if one.placed else one.value.indices
            of_one = tf.SparseTensor(indices, of_one, one.value.dense_shape)
        results[one.same] = of_one
    return {key: results[one.same] for key, one in of_key.items()}


def _conversion(ids: Ids, batch: Batch) -> _Conversion | None:
    feature = ids.feature
    if feature.max_sequence_length or ids.weights is not None or ids.source is None:
        return None
    if as_tensor(batch.features[feature.key]).dtype != tf.string:
        return None  # The values are ids.
    value = as_tensor(batch.given[feature.key])
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
        handles = _tables(ids.source.readers, ids.ids.graph)
        if len(handles) == 1:
            args = (column.num_oov_buckets, column.default_value)
            return _Conversion(value, _VOCABULARY, *args, handles[0])
    return None


def _tables(readers: frozenset[str], graph: tf.Graph) -> list[tf.Tensor]:
    """Returns the handles of the hash tables in which `readers`, names of ops, look values up."""
    operations = [graph.get_operation_by_name(name) for name in readers]
    handles = [op.inputs[0] for op in operations if op.type == "LookupTableFindV2"]
    here = [tf.DeviceSpec.from_string(handle.device).job != serving.JOB for handle in handles]
    return handles if all(here) else []
