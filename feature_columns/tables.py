# SPDX-License-Identifier: Apache-2.0
"""From embedding columns to the tables and lookups that an engine works with."""

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.config import Feature, Table, TableConfig

logger = logging.getLogger("estimator_emb")

TABLE_PREFIX = "tbl_"
"""What tensorflow-estimator puts before a column's name to name its table."""


def tables_of_columns(columns: Sequence[Any]) -> list[Table]:
    """The tables behind embedding columns, sorted by name; a shared table once.

    Args:
      columns: made by `embedding_column` or `shared_embedding_columns`.

    Raises:
      TypeError: a column is of another kind.
      ValueError: two columns read the same feature, one is given twice, or one table is asked for
        in two shapes or with two combiners or rates.
    """
    configs: dict[str, TableConfig] = {}
    scope_keys: dict[str, str] = {}
    features: dict[str, list[Feature]] = {}
    column_of_key: dict[str, Any] = {}
    for column in columns:
        if not hasattr(column, "get_embedding_var_name"):
            raise TypeError(
                f"Column {column.name!r} of the EmbeddingConfigSpec has no table for an embedding "
                "engine; make it with feature_columns.embedding_column or "
                f"feature_columns.shared_embedding_columns. It is a {type(column).__name__}."
            )
        key = column.get_feature_key_name()
        scope_key = column.get_embedding_var_name()
        name = TABLE_PREFIX + scope_key
        if key in column_of_key:
            raise _two_columns(key, column_of_key[key], column)
        column_of_key[key] = column
        vocabulary_size, dimension = column.get_embedding_table_size()
        config = TableConfig(
            vocabulary_size,
            dimension,
            initializer=column.get_initializer(),
            combiner=column.get_combiner(),
            learning_rate_fn=column.get_learning_rate_fn(),
        )
        first = configs.setdefault(name, config)
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
        scope_keys[name] = scope_key
        features.setdefault(name, []).append(
            Feature(
                key,
                column.get_max_sequence_length(),
                column.get_weight_key_name(),
                column_name=column.name,
                to_ids=_string_lookup(column.categorical_column),
                integers_to_ids=_integer_lookup(column.categorical_column),
            )
        )
    return [
        Table(
            name,
            configs[name],
            tuple(sorted(features[name], key=lambda feature: feature.key)),
            scope_keys[name],
        )
        for name in sorted(configs)
    ]


def _two_columns(key: str, first: Any, second: Any) -> ValueError:
    if _shown(first) == _shown(second):
        return ValueError(
            f"Column {second.name!r} is in the EmbeddingConfigSpec twice; take one of the two out."
        )
    return ValueError(
        f"Feature {key!r} is used with multiple embeddings: {_shown(first)} and {_shown(second)}. "
        "A feature can feed one table only. Give the second column its own key, and copy the "
        "feature under that key in input_fn."
    )


def _shown(column: Any) -> str:
    size, dimension = column.get_embedding_table_size()
    return (
        f"column {column.name!r} (table {TABLE_PREFIX + column.get_embedding_var_name()!r}, "
        f"{size} x {dimension}, combiner {column.get_combiner()!r})"
    )


def _string_lookup(categorical_column: Any) -> Callable[[tf.Tensor], tf.Tensor] | None:
    """The categorical column's own way from strings to ids, on a vector."""
    column = _without_wrappers(categorical_column)
    return _lookup(column) if getattr(column, "dtype", None) == tf.string else None


def _integer_lookup(categorical_column: Any) -> Callable[[tf.Tensor], tf.Tensor] | None:
    """The categorical column's own way from integers to ids, where they are not ids already."""
    column = _without_wrappers(categorical_column)
    dtype = getattr(column, "dtype", None)
    if dtype is not None and dtype.is_integer:
        return _lookup(column)
    has_default = getattr(column, "default_value", None) is not None
    return _lookup(column) if dtype is None and has_default else None


def _without_wrappers(categorical_column: Any) -> Any:
    while hasattr(categorical_column, "categorical_column"):  # weighted, sequence
        categorical_column = categorical_column.categorical_column
    return categorical_column


def _lookup(column: Any) -> Callable[[tf.Tensor], tf.Tensor]:
    def to_ids(values: tf.Tensor) -> tf.Tensor:
        _check_vocabulary_file(column)
        positions = tf.range(tf.size(values, out_type=tf.int64))
        as_column = tf.SparseTensor(
            tf.stack([positions, tf.zeros_like(positions)], axis=1),
            values,
            tf.stack([tf.size(values, out_type=tf.int64), tf.constant(1, tf.int64)]),
        )
        return column._transform_input_tensor(as_column).values

    return to_ids


def _check_vocabulary_file(column: Any) -> None:
    """Refuses a file that does not give the column its vocabulary.

    Further lines than `vocabulary_size` are no error: TensorFlow documents that they are not part
    of the vocabulary.
    """
    path = getattr(column, "vocabulary_file", None)
    if not isinstance(path, (str, os.PathLike)):
        return
    owner = f"Column {column.name!r}: vocabulary file {os.fspath(path)!r}"
    if not tf.io.gfile.exists(path):
        raise ValueError(f"{owner} does not exist.")
    if getattr(column, "file_format", None) == "tfrecord_gzip":
        return
    with tf.io.gfile.GFile(path, "rb") as file:
        lines = sum(1 for _ in file)
    size = column.vocabulary_size
    if lines == 0:
        raise ValueError(f"{owner} is empty.")
    if lines < size:
        raise ValueError(f"{owner} has {lines} lines, fewer than its vocabulary_size, {size}.")
    if lines > size:
        logger.info(
            "%s has %d lines; those after vocabulary_size, %d, are out of it.", owner, lines, size
        )
