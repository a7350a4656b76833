"""Feature columns: their tables, their vocabulary files, and their use in a model."""

import harness
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_estimator.python.estimator.tpu import _tpu_estimator_embedding

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.spec.resolved import Feature, tables_of_columns


def identity(key, size=20):
    return fc.categorical_column_with_identity(key, size)


def rate(step):
    return 0.1


def only_table(column):
    (table,) = tables_of_columns([column])
    return table


def both(*keys, size=20, dimension=2, **kwargs):
    """Returns columns of `keys` that share the table 'both'."""
    columns = [identity(key, size) for key in keys]
    return fc.shared_embedding_columns(
        columns, dimension, shared_embedding_collection_name="both", **kwargs
    )


@pytest.mark.parametrize(
    "categorical, length, name, feature",
    [
        (identity("item"), 0, "item", Feature("item", column_name="item_embedding")),
        (
            fc.weighted_categorical_column(identity("words"), "tf_idf"),
            0,
            "words_weighted_by_tf_idf",
            Feature("words", weight_key="tf_idf", column_name="words_weighted_by_tf_idf_embedding"),
        ),
        (
            fc.sequence_categorical_column_with_identity("history", 20),
            3,
            "history",
            Feature("history", 3, column_name="history_embedding"),
        ),
    ],
    ids=["plain", "weighted", "sequence"],
)
def test_a_column_becomes_a_table(categorical, length, name, feature):
    zeros = tf.compat.v1.zeros_initializer()
    column = fc.embedding_column(
        categorical, 3, "sum", zeros, max_sequence_length=length, learning_rate_fn=rate
    )
    table = only_table(column)
    assert (table.name, table.scope_key) == (f"tbl_{name}", name)
    assert table.config == ee.TableConfig(20, 3, zeros, "sum", learning_rate_fn=rate)
    assert table.features == (feature,)


def test_shared_columns_have_one_table():
    zeros = tf.compat.v1.zeros_initializer()
    pair = [identity("words"), fc.sequence_categorical_column_with_identity("history", 20)]
    options = {"max_sequence_lengths": [0, 2], "learning_rate_fn": rate}
    columns = fc.shared_embedding_columns(pair, 4, "sqrtn", zeros, **options)
    (table,) = tables_of_columns(columns)
    assert table.name == "tbl_history_words_shared_embedding"
    assert table.scope_key == "history_words_shared_embedding"
    assert table.config == ee.TableConfig(20, 4, zeros, "sqrtn", learning_rate_fn=rate)
    assert table.features == (
        Feature("history", 2, column_name="history_shared_embedding"),
        Feature("words", column_name="words_shared_embedding"),
    )


def test_tables_and_features_are_sorted():
    """The order of columns in a program must not matter. Capitals come first, as in ASCII."""
    columns = [
        fc.embedding_column(identity("zebra"), 2),
        *fc.shared_embedding_columns([identity("y"), identity("b")], 2),
        fc.embedding_column(identity("Zebra"), 2),
        fc.embedding_column(identity("ant"), 2),
    ]
    tables = tables_of_columns(columns)
    scopes = ["Zebra", "ant", "b_y_shared_embedding", "zebra"]
    assert [table.scope_key for table in tables] == scopes
    assert [table.name for table in tables] == [f"tbl_{scope}" for scope in scopes]
    keys = [feature.key for table in tables for feature in table.features]
    assert keys == ["Zebra", "ant", "b", "y", "zebra"]


def test_a_tables_vocabulary_size_counts_words_and_buckets(tmp_path):
    (tmp_path / "words").write_text("apple\npear\nfig\n")
    for column, size in (
        (fc.categorical_column_with_hash_bucket("w", 7), 7),
        (fc.categorical_column_with_vocabulary_list("w", ["a", "b"]), 2),
        (fc.categorical_column_with_vocabulary_list("w", ["a", "b"], num_oov_buckets=3), 2 + 3),
        (fc.categorical_column_with_vocabulary_file("w", str(tmp_path / "words")), 3),
        (fc.categorical_column_with_vocabulary_file("w", str(tmp_path / "words"), 2, 4), 2 + 4),
        (fc.weighted_categorical_column(identity("w", 8), "weight"), 8),
    ):
        assert only_table(fc.embedding_column(column, 2)).config.vocabulary_size == size


@pytest.mark.parametrize(
    "columns, name, table, combination",
    [
        (both("item", "other"), "item_shared_embedding", "tbl_both", "20 x 2"),
        ([fc.embedding_column(identity("item"), 4)], "item_embedding", "tbl_item", "20 x 4"),
    ],
    ids=["other table", "same name"],
)
def test_two_tables_for_one_feature_are_refused(columns, name, table, combination):
    """A first column gives feature 'item' a table of 20 x 2; `columns` give it a second table."""
    first = fc.embedding_column(identity("item"), 2)
    said = harness.refusal(ValueError, tables_of_columns, [first, *columns])
    assert said.startswith(
        "Feature 'item' is used with multiple embeddings and this is not support"
    )
    assert "column 'item_embedding' (table 'tbl_item', 20 x 2, combiner 'mean')" in said
    assert f"column {name!r} (table {table!r}, {combination}, combiner 'mean')" in said


@pytest.mark.parametrize(
    "columns, message",
    [
        ([fc.embedding_column(identity("item"), 2)] * 2, "Column 'item_embedding' is in the Emb"),
        ([*both("a", "b"), *both("c", dimension=3)], "shapes: [20, 2], and [20, 3] by feature 'c'"),
        ([*both("a", "b"), *both("c", size=30)], "shapes: [20, 2], and [30, 2] by feature 'c'."),
        (
            [*both("a", combiner="mean"), *both("b", combiner="sum")],
            "two values of combiner: 'mean', and 'sum' by feature 'b'.",
        ),
    ],
    ids=["column twice", "dimensions", "rows", "combiners"],
)
def test_conflicting_columns_are_refused(columns, message):
    assert message in harness.refusal(ValueError, tables_of_columns, columns)


def test_shared_columns_of_two_calls_share_a_table_of_one_name_and_shape():
    (table,) = tables_of_columns([*both("b"), *both("a")])
    assert (table.name, table.scope_key) == ("tbl_both", "both")
    assert [feature.key for feature in table.features] == ["a", "b"]


def spec_of(columns):
    return ee.EmbeddingConfigSpec(columns, ee.AdagradParameters(0.1))


@pytest.mark.parametrize(
    "column",
    [
        identity("item"),
        fc.indicator_column(identity("item")),
        fc.bucketized_column(fc.numeric_column("age"), [10.0, 20.0]),
        fc.crossed_column(["a", "b"], 10),
        fc.categorical_column_with_hash_bucket("item", 5),
        fc.sequence_categorical_column_with_identity("item", 5),
    ],
    ids=lambda column: type(column).__name__,
)
def test_spec_refuses_columns_without_embeddings(column):
    said = harness.refusal(TypeError, spec_of, [fc.embedding_column(identity("item"), 2), column])
    assert said.startswith("EmbeddingConfigSpec: All feature columns must be supported types, made")
    assert said.endswith(f"; got {column!r}.")


def test_spec_accepts_columns_of_the_model_off_a_tpu():
    """There the model makes their variables. On a TPU, only columns with tables are supported."""
    columns = [fc.numeric_column("age"), tf.feature_column.embedding_column(identity("item"), 2)]
    assert spec_of(columns).feature_columns == columns
    assert tables_of_columns(columns, off_tpu=True) == []
    for column in columns:
        with pytest.raises(TypeError, match="Unsupported feature column"):
            tables_of_columns([column])


def test_shared_embeddings_of_tensorflow_2_are_refused():
    """tensorflow-estimator's spec refuses them too. It refuses no other `tf.feature_column`."""
    with tf.Graph().as_default():
        shared, _ = tf.feature_column.shared_embeddings([identity("a"), identity("b")], 2)
    columns = [fc.embedding_column(identity("word"), 2), shared]
    with pytest.raises(TypeError, match="^All feature columns must be supported types"):
        _tpu_estimator_embedding.EmbeddingConfigSpec(columns, ee.AdagradParameters(0.1))
    said = harness.refusal(TypeError, spec_of, columns)
    assert (
        "column 'a_shared_embedding' is a SharedEmbeddingColumn, which the model computes" in said
    )


def test_a_missing_or_short_vocabulary_file_is_named(tmp_path):
    path = tmp_path / "words"
    path.write_text("plum\n")
    words = fc.categorical_column_with_vocabulary_file("word", str(path), 2)
    (feature,) = only_table(fc.embedding_column(words, 2)).features
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        feature.to_ids(tf.constant(["plum"]))
        with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid vocab_size in .*words"):
            session.run(tf.compat.v1.tables_initializer())
        path.unlink()
        with pytest.raises(tf.errors.NotFoundError, match=str(path)):
            session.run(tf.compat.v1.tables_initializer())


def test_sequence_input_layer_refuses_a_column_without_sequence():
    features, column = {"age": tf.zeros([2, 1])}, fc.numeric_column("age")
    message = harness.refusal(ValueError, fc.sequence_input_layer, features, [column])
    assert message.startswith("sequence_input_layer: every column must be a sequence column that")


def two_sequences(b):
    """Returns features 'a' and `b`, and sequence columns of TensorFlow, which are accepted too."""
    columns = [
        tf.feature_column.embedding_column(
            tf.feature_column.sequence_categorical_column_with_identity(key, 5),
            size,
            initializer=tf.compat.v1.constant_initializer(np.arange(5.0 * size) + size),
        )
        for key, size in (("b", 3), ("a", 2))
    ]
    a = harness.sparse([[1, 2], [], [3, 0, 4]])
    return {"a": tf.SparseTensor(*a), "b": tf.SparseTensor(*harness.sparse(b))}, columns


def test_sequence_input_layer_equals_sequence_features():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features, columns = two_sequences([[4, 4], [], [0, 2, 1]])
        ours = fc.sequence_input_layer(features, columns)
        theirs = tf.keras.experimental.SequenceFeatures(columns)(features)
        session.run(tf.compat.v1.global_variables_initializer())
        for got, want in zip(*session.run([ours, theirs]), strict=True):
            np.testing.assert_array_equal(got, want, strict=True)


def test_sequence_input_layer_refuses_different_lengths():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        _, lengths = fc.sequence_input_layer(*two_sequences([[4], [], [0, 2, 1]]))
        session.run(tf.compat.v1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="lengths of the columns differ"):
            session.run(lengths)
