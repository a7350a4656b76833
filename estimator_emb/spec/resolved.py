"""Converts an `EmbeddingConfigSpec` with columns or config dicts to a list of tables."""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from estimator_emb.compat.internals.column_classes import (
    LegacyTPUSharedEmbeddingColumn,
    TPUSharedEmbeddingColumn,
)
from estimator_emb.optimizers import OptimizationParameters
from estimator_emb.spec.column_ids import computed_ids, integer_lookup, string_lookup
from estimator_emb.spec.config import EmbeddingConfigSpec, FeatureConfig, TableConfig

TABLE_PREFIX = "tbl_"
"""Prefix of the names of columns' tables, as in tensorflow-estimator."""


@dataclasses.dataclass(frozen=True)
class Feature:
    """A feature of the input that looks up a table, and how its ids are read.

    Attributes:
      key: key of the ids in the features dict. The activation replaces the ids there.
      to_ids: function from strings [n] to int64 ids [n], if the feature takes strings. -1 leaves a
        string out.
      integers_to_ids: the same function for integers, unless the integers are ids.
      computed: function from the batch's features to the ids of a bucketized or crossed column,
        unless input_fn gives the ids.
      column: this feature's column if several columns read the same input. `key` may then differ
        from the input's key.
    """

    key: str
    max_sequence_length: int = 0
    weight_key: str | None = None
    column_name: str | None = None
    to_ids: Callable[[Any], Any] | None = None
    integers_to_ids: Callable[[Any], Any] | None = None
    computed: Callable[[Any], Any] | None = None
    column: Any = None

    @property
    def input_key(self) -> str:
        return self.column.get_feature_key_name() if self.column else self.key


@dataclasses.dataclass(frozen=True)
class Table:
    """A table with the features that look it up, sorted by key.

    A feature column records its variable scope under the key `scope_key`. It is missing in a spec
    of config dicts. `optimizer` is the table's own optimizer or else the spec's, and may be
    missing. `clipping_limit` is the spec's limit.
    """

    name: str
    config: TableConfig
    features: tuple[Feature, ...]
    scope_key: str | None = None
    optimizer: OptimizationParameters | None = None
    clipping_limit: float | None = None

    @property
    def trained_by(self) -> OptimizationParameters:
        """The optimizer. Raises ValueError if it is missing or does not support the dimension."""
        optimizer, dimension = self.optimizer, self.config.dimension
        if optimizer is None:
            raise ValueError(
                f"Table {self.name!r} has no optimizer: give it optimization_parameters in its "
                "TableConfig, or in the EmbeddingConfigSpec."
            )
        if optimizer.required_dimension not in (None, dimension):
            raise ValueError(
                f"Table {self.name!r}: {type(optimizer).__name__} needs dimension "
                f"{optimizer.required_dimension}; got {dimension}."
            )
        return optimizer


def tables_of(spec: EmbeddingConfigSpec | None, off_tpu: bool = False) -> list[Table]:
    """Returns a validated spec's tables, sorted by name. See `tables_of_columns` for `off_tpu`."""
    if spec is None:
        return []
    optimizer, dicts = spec.optimization_parameters, spec.table_to_config_dict
    if dicts:
        tables = tables_of_dicts(spec.feature_to_config_dict, dicts, optimizer)
    else:
        tables = tables_of_columns(spec.feature_columns or (), optimizer, off_tpu)
    return [dataclasses.replace(table, clipping_limit=spec.clipping_limit) for table in tables]


def tables_of_dicts(
    features: Mapping[str, FeatureConfig],
    tables: Mapping[str, TableConfig],
    optimizer: OptimizationParameters | None,
) -> list[Table]:
    """Returns the tables of config dicts, sorted by name. `optimizer` is their default."""
    return [
        Table(
            name,
            config,
            tuple(
                Feature(key, feature.max_sequence_length, feature.weight_key)
                for key, feature in sorted(features.items())
                if feature.table_id == name
            ),
            optimizer=config.optimization_parameters or optimizer,
        )
        for name, config in sorted(tables.items())
    ]


def tables_of_columns(
    columns: Sequence[Any], optimizer: OptimizationParameters | None = None, off_tpu: bool = False
) -> list[Table]:
    """Returns the tables of embedding columns, sorted by name. A shared table is listed once.

    With `off_tpu`, columns that read the same input each get their own table and feature key.
    Duplicate columns count once, and columns without a table are skipped. Otherwise they raise
    ValueError or TypeError. A table with two shapes, combiners or rates always raises ValueError.
    """
    tables: dict[str, Table] = {}
    features: dict[str, list[Feature]] = {}
    for column, key, scope_key, alone in _off_tpu(columns) if off_tpu else _on_tpu(columns):
        name = TABLE_PREFIX + scope_key
        vocabulary_size, dimension = column.get_embedding_table_size()
        config = TableConfig(
            vocabulary_size,
            dimension,
            initializer=column.get_initializer(),
            combiner=column.get_combiner(),
            learning_rate_fn=column.get_learning_rate_fn(),
        )
        first = tables.setdefault(name, Table(name, config, (), scope_key, optimizer)).config
        if (first.vocabulary_size, first.dimension) != (vocabulary_size, dimension):
            raise ValueError(
                f"Table {name!r} is asked for in two shapes: [{first.vocabulary_size}, "
                f"{first.dimension}], and [{vocabulary_size}, {dimension}] by feature {key!r}."
            )
        for field in ("combiner", "learning_rate_fn"):
            if getattr(first, field) != getattr(config, field):
                raise ValueError(
                    f"Table {name!r} is asked for with two values of {field}: "
                    f"{getattr(first, field)!r}, and {getattr(config, field)!r} by feature {key!r}."
                )
        feature = Feature(
            key,
            column.get_max_sequence_length(),
            column.get_weight_key_name(),
            column_name=column.name,
            to_ids=string_lookup(column.categorical_column),
            integers_to_ids=integer_lookup(column.categorical_column),
            computed=computed_ids(column.categorical_column),
            column=None if alone else column,
        )
        features.setdefault(name, []).append(feature)
    return [
        dataclasses.replace(
            tables[name], features=tuple(sorted(features[name], key=lambda one: one.key))
        )
        for name in sorted(tables)
    ]


_Named = tuple[Any, str, str, bool]
"""A column, its feature key, its table's scope key, and whether it alone reads its input."""


def _on_tpu(columns: Sequence[Any]) -> Iterator[_Named]:
    column_of_key: dict[str, Any] = {}
    for column in columns:
        if not _has_table(column):
            raise TypeError(
                f"Unsupported feature column {column.name!r}, of type {type(column).__name__}: it "
                "has no table on a TPU. Supported types are those that "
                "feature_columns.embedding_column and feature_columns.shared_embedding_columns "
                "make. Make it with one of the two, or leave it out of the EmbeddingConfigSpec and "
                "use it in model_fn; with use_tpu=False the spec takes it."
            )
        key = column.get_feature_key_name()
        if computed_ids(column.categorical_column):
            raise ValueError(
                f"Column {column.name!r}: on a TPU, input_fn gives the ids of a table, and {key!r} "
                "computes them from other features. Compute them in input_fn (tf.searchsorted for "
                "buckets, tf.sparse.cross_hashed for crosses), and make the column of "
                "categorical_column_with_identity; with use_tpu=False it trains as it is."
            )
        if key in column_of_key:
            raise _two_columns(key, column_of_key[key], column)
        column_of_key[key] = column
        yield column, key, column.get_embedding_var_name(), True


def _off_tpu(columns: Sequence[Any]) -> Iterator[_Named]:
    distinct: list[Any] = []
    for column in filter(_has_table, columns):
        if not any(column == other and signature(column) == signature(other) for other in distinct):
            distinct.append(column)
    readers = collections.Counter(column.get_feature_key_name() for column in distinct)
    keys: set[str] = set()
    scope_keys: set[str] = set()
    for column in distinct:
        key, scope_key = column.get_feature_key_name(), column.get_embedding_var_name()
        alone = readers[key] == 1
        key = _unused(keys, key, f"{key}/{column.name}")
        if not isinstance(column, (TPUSharedEmbeddingColumn, LegacyTPUSharedEmbeddingColumn)):
            scope_key = _unused(scope_keys, scope_key)
        keys.add(key)
        scope_keys.add(scope_key)
        yield column, key, scope_key, alone


def _unused(used: Container[str], *names: str) -> str:
    """Returns the first unused name, else the last name with a number."""
    numbered = (f"{names[-1]}_{number}" for number in itertools.count(1))
    return next(name for name in itertools.chain(names, numbered) if name not in used)


def _has_table(column: Any) -> bool:
    return hasattr(column, "get_embedding_var_name")


def signature(column: Any) -> tuple[Any, ...]:
    """Returns the properties that are equal in two columns made by the same call."""
    return (
        column.name,
        column.get_feature_key_name(),
        column.get_weight_key_name(),
        column.get_embedding_var_name(),
        column.get_embedding_table_size(),
        column.get_combiner(),
        column.get_max_sequence_length(),
        column.get_learning_rate_fn(),
    )


def with_own_keys(tables: Sequence[Table], features: Any) -> Any:
    """Returns a batch's features, with the ids of each table's features under their own keys."""
    if not isinstance(features, Mapping):
        return features
    listed = [feature for table in tables for feature in table.features]
    computed = {
        feature.input_key: feature.computed(features) for feature in listed if feature.computed
    }
    features = {**features, **computed} if computed else features
    copied = {
        feature.key: features[feature.input_key]
        for feature in listed
        if feature.column and feature.input_key in features
    }
    return {**features, **copied} if copied else features


def _two_columns(key: str, first: Any, second: Any) -> ValueError:
    if _shown(first) == _shown(second):
        return ValueError(
            f"Column {second.name!r} is in the EmbeddingConfigSpec twice; take one of the two out."
        )
    return ValueError(
        f"Feature {key!r} is used with multiple embeddings and this is not supported: "
        f"{_shown(first)} and {_shown(second)}. A feature can feed one table only. Give the second "
        "column its own key, and copy the feature under that key in input_fn."
    )


def _shown(column: Any) -> str:
    size, dimension = column.get_embedding_table_size()
    return (
        f"column {column.name!r} (table {TABLE_PREFIX + column.get_embedding_var_name()!r}, "
        f"{size} x {dimension}, combiner {column.get_combiner()!r})"
    )
