# SPDX-License-Identifier: Apache-2.0
"""Mistakes in what a program says of its tables and of itself."""

import tensorflow as tf
from program import Program, mistakes

import estimator_emb as ee
import feature_columns as fc

UNSUPPORTED = (
    "Unsupported feature column '{}', of type {}: it has no table on a TPU. Supported types are "
    "those that feature_columns.embedding_column and feature_columns.shared_embedding_columns "
    "make. Make it with one of the two, or leave it out of the EmbeddingConfigSpec and use it in "
    "model_fn; with use_tpu=False the spec takes it."
)


def item():
    return fc.categorical_column_with_identity("item", 5)


mistakes(
    "build",
    TypeError,
    {
        "a_plain_embedding_column": (
            {"columns": lambda: [tf.feature_column.embedding_column(item(), 2)]},
            UNSUPPORTED.format("item_embedding", "EmbeddingColumn"),
        ),
        "a_numeric_column_in_the_spec": (
            {"columns": lambda program: [*Program.columns(program), fc.numeric_column("age")]},
            UNSUPPORTED.format("age", "NumericColumn"),
        ),
    },
    only="host",
)
mistakes(
    "build",
    ValueError,
    {
        "two_columns_on_one_feature": (
            {"columns": lambda: [fc.embedding_column(item(), width) for width in (2, 4)]},
            "Feature 'item' is used with multiple embeddings and this is not supported: column "
            "'item_embedding' (table 'tbl_item', 5 x 2, combiner 'mean') and column "
            "'item_embedding' (table 'tbl_item', 5 x 4, combiner 'mean'). A feature can feed one "
            "table only. Give the second column its own key, and copy the feature under that key "
            "in input_fn.",
        ),
        "one_column_twice": (
            {"columns": lambda: 2 * [fc.embedding_column(item(), 2)]},
            "Column 'item_embedding' is in the EmbeddingConfigSpec twice; take one of the two out.",
        ),
    },
    only="host",
)
mistakes(
    "build",
    TypeError,
    {
        "a_categorical_column_in_the_spec": (
            {"columns": lambda: [item()]},
            "EmbeddingConfigSpec: All feature columns must be supported types, made by "
            "feature_columns.embedding_column or feature_columns.shared_embedding_columns; got "
            "IdentityCategoricalColumn(key='item', number_buckets=5, default_value=None).",
        ),
        "estimator_without_tables_for_tables": (
            {"build": lambda program: ee.Estimator(program.model_fn, embedding_config_spec=None)},
            "Estimator.__init__() got an unexpected keyword argument 'embedding_config_spec'",
        ),
    },
)
mistakes(
    "build",
    ValueError,
    {
        "columns_and_dicts": (
            {"spec.table_to_config_dict": {"items": ee.TableConfig(5, 2)}},
            "EmbeddingConfigSpec: exactly one of `feature_columns` and the pair "
            "`feature_to_config_dict` and `table_to_config_dict` must be specified.",
        ),
        "another_model_dir": (
            {"estimator.model_dir": "/elsewhere"},
            "`model_dir` are set both in constructor and `RunConfig`, but with different values. "
            "In constructor: '/elsewhere', in `RunConfig`: '{directory}' ",
        ),
    },
)


def a_forgotten_spec(program):
    program.used = program.columns()
    program.estimator["embedding_config_spec"] = None


def a_column_that_the_spec_lacks(program):
    good = program.columns()
    program.spec["feature_columns"] = good[:1]
    program.embeddings = lambda features: fc.DenseFeatures(good)(features)


mistakes(
    "train",
    ValueError,
    {
        "a_forgotten_spec": (
            a_forgotten_spec,
            "model_fn uses the TPU embedding columns of tables ['item', 'words'], but TPUEstimator "
            "was given no embedding_config_spec: give it one with these columns.",
        ),
    },
    only="host",
)
mistakes(
    "train",
    ValueError,
    {
        "a_column_that_the_spec_lacks": (
            a_column_that_the_spec_lacks,
            "model_fn uses the TPU embedding columns of tables ['words'], which are not in the "
            "EmbeddingConfigSpec: add them to its feature_columns. It has the tables ['tbl_item'].",
        ),
    },
)
mistakes(
    "evaluate",
    ValueError,
    {
        "no_such_checkpoint": (
            {"evaluate.checkpoint_path": "/nowhere/model.ckpt-7"},
            "checkpoint_path: The passed save_path is not a valid checkpoint: "
            "'/nowhere/model.ckpt-7'.\nWhat to do: give the path of a checkpoint without the ends "
            "of its files' names.",
        ),
    },
)
