"""Feature columns for programs with TPU embedding tables.

The columns are TensorFlow's own. TensorFlow spreads the functions that make them over four modules,
two of them private. This package collects the functions.

`embedding_column` and `shared_embedding_columns` make the columns of an `EmbeddingConfigSpec` from
categorical columns that read a single feature. The input layers turn columns into a model's input.
"""

# ruff: noqa: I001 - Keras 2 has the input layers and must be bound first.
import estimator_emb  # noqa: F401

from feature_columns.categorical import (
    bucketized_column,
    categorical_column_with_hash_bucket,
    categorical_column_with_identity,
    categorical_column_with_vocabulary_file,
    categorical_column_with_vocabulary_list,
    crossed_column,
    weighted_categorical_column,
)
from feature_columns.dense import (
    embedding_column,
    indicator_column,
    numeric_column,
    shared_embedding_columns,
)
from feature_columns.layers import (
    DenseFeatures,
    SequenceFeatures,
    input_layer,
    linear_model,
    make_parse_example_spec,
)
from feature_columns.sequence import (
    sequence_categorical_column_with_hash_bucket,
    sequence_categorical_column_with_identity,
    sequence_categorical_column_with_vocabulary_file,
    sequence_categorical_column_with_vocabulary_list,
    sequence_input_layer,
)

__all__ = [
    "DenseFeatures",
    "SequenceFeatures",
    "bucketized_column",
    "categorical_column_with_hash_bucket",
    "categorical_column_with_identity",
    "categorical_column_with_vocabulary_file",
    "categorical_column_with_vocabulary_list",
    "crossed_column",
    "embedding_column",
    "indicator_column",
    "input_layer",
    "linear_model",
    "make_parse_example_spec",
    "numeric_column",
    "sequence_categorical_column_with_hash_bucket",
    "sequence_categorical_column_with_identity",
    "sequence_categorical_column_with_vocabulary_file",
    "sequence_categorical_column_with_vocabulary_list",
    "sequence_input_layer",
    "shared_embedding_columns",
    "weighted_categorical_column",
]
