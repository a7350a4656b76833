# SPDX-License-Identifier: Apache-2.0
"""Mistakes in what a program says of its tables, of itself and of where it runs."""

import os

import tensorflow as tf
from program import Program, build, evaluate, export, train

import estimator_emb as ee
import feature_columns as fc

UNSUPPORTED = (
    "Unsupported feature column '{}', of type {}: it has no table on a TPU. Supported types are "
    "those that feature_columns.embedding_column and feature_columns.shared_embedding_columns "
    "make. Make it with one of the two, or leave it out of the EmbeddingConfigSpec and use it in "
    "model_fn; with use_tpu=False the spec takes it."
)


@build(
    TypeError,
    "TableConfig() got an unexpected keyword argument 'vocab_size'. Did you mean "
    "'vocabulary_size'?",
)
def misspelt_argument_of_table(program):
    program.dicts = True
    program.tables["items"]["vocab_size"] = program.tables["items"].pop("vocabulary_size")


@build(
    ValueError,
    "EmbeddingConfigSpec: exactly one of `feature_columns` and the pair `feature_to_config_dict` "
    "and `table_to_config_dict` must be specified.",
)
def columns_and_dicts(program):
    program.spec["table_to_config_dict"] = {"items": ee.TableConfig(5, 2)}


@build(
    TypeError,
    UNSUPPORTED.format("item_embedding", "EmbeddingColumn"),
    only="host",
)
def a_plain_embedding_column(program):
    item = fc.categorical_column_with_identity("item", 5)
    program.columns = lambda: [tf.feature_column.embedding_column(item, 2)]


@build(
    TypeError,
    UNSUPPORTED.format("age", "NumericColumn"),
    only="host",
)
def a_numeric_column_in_the_spec(program):
    good = program.columns()
    program.columns = lambda: [*good, fc.numeric_column("age")]


@build(
    TypeError,
    "EmbeddingConfigSpec: All feature columns must be supported types, made by "
    "feature_columns.embedding_column or feature_columns.shared_embedding_columns; got "
    "IdentityCategoricalColumn(key='item', number_buckets=5, default_value=None).",
)
def a_categorical_column_in_the_spec(program):
    program.columns = lambda: [fc.categorical_column_with_identity("item", 5)]


@build(
    ValueError,
    "Feature 'item' is used with multiple embeddings and this is not supported: column "
    "'item_embedding' (table 'tbl_item', 5 x 2, combiner 'mean') and column 'item_embedding' "
    "(table 'tbl_item', 5 x 4, combiner 'mean'). A feature can feed one table only. Give the "
    "second column its own key, and copy the feature under that key in input_fn.",
    only="host",
)
def two_columns_on_one_feature(program):
    item = fc.categorical_column_with_identity("item", 5)
    program.columns = lambda: [fc.embedding_column(item, width) for width in (2, 4)]


@build(
    ValueError,
    "Column 'item_embedding' is in the EmbeddingConfigSpec twice; take one of the two out.",
    only="host",
)
def one_column_twice(program):
    good = program.columns()
    program.columns = lambda: [*good, good[0]]


@train(
    ValueError,
    "model_fn uses the TPU embedding columns of tables ['item', 'words'], but TPUEstimator was "
    "given no embedding_config_spec: give it one with these columns.",
    only="host",
)
def a_forgotten_spec(program):
    program.used = program.columns()
    program.estimator["embedding_config_spec"] = None


@train(
    ValueError,
    "model_fn uses the TPU embedding columns of tables ['words'], which are not in the "
    "EmbeddingConfigSpec: add them to its feature_columns. It has the tables ['tbl_item'].",
)
def a_column_that_the_spec_lacks(program):
    good = program.columns()
    program.spec["feature_columns"] = good[:1]
    program.embeddings = lambda features: fc.DenseFeatures(good)(features)


@build(
    ValueError,
    "`model_dir` are set both in constructor and `RunConfig`, but with different values. In "
    "constructor: '{directory}-2', in `RunConfig`: '{directory}' ",
)
def another_model_dir(program):
    program.estimator["model_dir"] = program.config["model_dir"] + "-2"


@evaluate(
    ValueError,
    "checkpoint_path: The passed save_path is not a valid checkpoint: "
    "'{directory}/model.ckpt-7'.\nWhat to do: give the path of a checkpoint without the ends of "
    "its files' names.",
)
def no_such_checkpoint(program):
    program.evaluate["checkpoint_path"] = os.path.join(program.config["model_dir"], "model.ckpt-7")


@export(ValueError, "Couldn't find trained model at {directory}-untrained.")
def export_without_training(program):
    program.config["model_dir"] += "-untrained"


@build(
    TypeError,
    "Estimator.__init__() got an unexpected keyword argument 'embedding_config_spec'",
)
def estimator_without_tables_for_tables(program):
    program.build = lambda: ee.Estimator(
        program.model_fn,
        config=program.run_config(),
        embedding_config_spec=Program.embedding_config_spec(program),
    )
