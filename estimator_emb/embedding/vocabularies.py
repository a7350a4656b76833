# SPDX-License-Identifier: Apache-2.0
"""Tells how a program without feature columns makes the ids of a column."""

import dataclasses
from typing import Any

import tensorflow as tf

from estimator_emb.spec.columns import without_wrappers


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The code that makes a column's ids, and the kind of the column in words.

    `code` is an expression in `values`, the tensor of the feature, and `column`, the categorical
    column. Its value is the ids, int64; -1 where a value is to be left out.
    """

    column: str
    code: str


def recipe(categorical_column: Any) -> Recipe | None:
    """Returns the recipe of a categorical column's ids; None where the values are the ids."""
    column = without_wrappers(categorical_column)
    kind = type(column).__name__
    if kind == "HashedCategoricalColumn":
        text = "values" if column.dtype == tf.string else "tf.strings.as_string(values)"
        return Recipe(
            "hash buckets", f"tf.strings.to_hash_bucket_fast({text}, {column.hash_bucket_size})"
        )
    if kind == "VocabularyListCategoricalColumn":
        key = "string" if column.dtype == tf.string else "int64"
        values = "values" if key == "string" else "tf.cast(values, tf.int64)"
        table = (
            f"tf.lookup.KeyValueTensorInitializer(column.vocabulary_list, "
            f"range({len(column.vocabulary_list)}), tf.{key}, tf.int64)"
        )
        return Recipe("vocabulary list", _lookup(column, table, values))
    if kind == "VocabularyFileCategoricalColumn" and not getattr(column, "file_format", None):
        table = (
            "tf.lookup.TextFileInitializer(column.vocabulary_file, tf.string, "
            "tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER, "
            f"vocab_size={column.vocabulary_size})"
        )
        text = "values" if column.dtype == tf.string else "tf.strings.as_string(values)"
        return Recipe("vocabulary file", _lookup(column, table, text))
    if kind == "IdentityCategoricalColumn":
        if column.default_value is None:
            return None
        size = column.number_buckets
        return Recipe(
            "default value",
            f"tf.where((values >= 0) & (values < {size}), tf.cast(values, tf.int64), "
            f"{column.default_value})",
        )
    return Recipe(kind, "by what this column computes")


def _lookup(column: Any, table: str, values: str) -> str:
    if column.num_oov_buckets:
        return (
            f"tf.lookup.StaticVocabularyTable({table}, {column.num_oov_buckets}).lookup({values})"
        )
    return f"tf.lookup.StaticHashTable({table}, {column.default_value}).lookup({values})"
