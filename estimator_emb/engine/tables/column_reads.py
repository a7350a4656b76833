"""Gives every feature column of a model_fn, off a TPU, the input that it has without a TPU.

In the features of a model_fn, activations replace the ids that TPU columns look up. Off a TPU,
other columns may read those ids, for example in a linear model beside a deep model. Several TPU
columns may also look up the same feature, each in its own table.

Columns read features through TensorFlow's objects that transform a feature once for all columns. A
TPU column asks such an object for its feature by name, and gets the activation. Any other column
also asks by name, but only while the object transforms that column. Then it gets the ids.
"""

import contextlib
import contextvars
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals import patches
from estimator_emb.compat.internals.column_classes import (
    FeatureTransformationCache,
    LazyBuilder,
    LegacyNumericColumn,
    NumericColumn,
    sequence_length_key,
)
from estimator_emb.compat.internals.graphs import could_possibly_record
from estimator_emb.spec.config import TABLE_COLUMNS
from estimator_emb.spec.resolved import Feature, Table, signature


class ColumnReads:
    """The features that columns read in a call of a model_fn.

    `given` has the model's features by key, and `features` has the input that they replace. `again`
    and `carried` are `PendingLookup.again` and `TableStep.from_previous_step`. The attribute
    `features` is `given` without features that only their own column can ask for.
    """

    def __init__(
        self,
        tables: Sequence[Table],
        given: Mapping[str, tf.Tensor],
        features: Mapping[str, Any],
        again: Callable[[str], tf.Tensor],
        carried: Callable[[Any], Any] = lambda structure: structure,
    ):
        every = [(table, feature) for table in tables for feature in table.features]
        self._of_columns = [(table, feature) for table, feature in every if feature.column]
        own = {
            key
            for _, feature in self._of_columns
            if feature.key != feature.input_key
            for key in (feature.key, sequence_length_key(feature.key))
        }
        self._own = {key: value for key, value in given.items() if key in own}
        self.features = {key: value for key, value in given.items() if key not in own}
        self._ids = {
            id(value): features[key] for key, value in self.features.items() if key in features
        }
        self._activations = {
            id(given[feature.key]): feature.key for _, feature in every if feature.key in given
        }
        self._again = again
        self._carried = carried
        self._read: dict[int, Any] = {}
        # Without TPU columns, a numeric column is the way to read an activation.
        self._numeric = (
            () if any(table.scope_key for table in tables) else (NumericColumn, LegacyNumericColumn)
        )
        self._transformed: list[Any] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        _install()
        before = _reads.set(self)
        try:
            yield
        finally:
            _reads.reset(before)

    def get(self, original: Callable[..., Any], reader: Any, key: Any, *args: Any) -> Any:
        """Returns the feature that a column reads through the TensorFlow object `reader`."""
        if not isinstance(key, str):
            self._transformed.append(key)
            try:
                return original(reader, key, *args)
            finally:
                self._transformed.pop()
        value = self._own.get(key, reader._features.get(key))
        transformed = self._transformed[-1:]
        if id(value) in self._ids and transformed and not isinstance(transformed[0], self._numeric):
            value = self._ids_of(id(value))
        elif id(value) in self._activations and could_possibly_record():
            value = self._again(self._activations[id(value)])
        elif key not in self._own:
            return original(reader, key, *args)
        return original(type(reader)({key: value}), key, *args)

    def feature_of(self, column: Any) -> tuple[Table, Feature] | None:
        """Returns the table and feature of a column if several columns read its input, or None."""
        now = _reads.set(None)  # Gives columns back the names from the program.
        try:
            wanted = signature(column)
            alike = [own for own in self._of_columns if signature(own[1].column) == wanted]
        finally:
            _reads.reset(now)
        # A model_fn may create its columns again. Then initializers differ.
        same = (own for own in alike if own[1].column == column)
        return next(itertools.chain(same, alike), None)

    def _ids_of(self, seen: int) -> Any:
        if seen not in self._read:
            with tf.init_scope():  # Outside of loops and branches, for all columns that read it.
                self._read[seen] = self._carried(self._ids[seen])
        return self._read[seen]


_reads: contextvars.ContextVar[ColumnReads | None] = contextvars.ContextVar("reads", default=None)
"""The features that columns read in this thread's running model_fn, or None."""


def _reading(original: Callable[..., Any]) -> Callable[..., Any]:
    def get(reader: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        bound = functools.partial(original, **kwargs)
        reads = _reads.get()
        return bound(reader, key, *args) if reads is None else reads.get(bound, reader, key, *args)

    return get


def _named(of: Callable[[Table, Feature], str | None], original: Callable[..., str]) -> Any:
    def name(column: Any) -> Any:
        reads = _reads.get()
        own = None if reads is None else reads.feature_of(column)
        return original(column) if own is None else of(*own)

    return name


@functools.cache
def _install() -> None:
    """Replaces TensorFlow's methods that read features. Other threads see no change."""
    for reader in (LazyBuilder, FeatureTransformationCache):
        patches.LASTING.wrap(reader, "get", _reading)
    named = {
        "get_feature_key_name": lambda _, feature: feature.key,
        "get_embedding_var_name": lambda table, _: table.scope_key,
    }
    for column in TABLE_COLUMNS:
        for name, of in named.items():
            patches.LASTING.wrap(column, name, functools.partial(_named, of))
