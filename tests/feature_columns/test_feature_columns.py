"""Feature columns: their tables, their ids of strings, and their use in a model."""

import harness
import pytest
import tensorflow as tf
from tensorflow_estimator.python.estimator.tpu import _tpu_estimator_embedding

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.spec.resolved import Feature, tables_of_columns

WORDS = ["apple", "pear", "fig", "plum", "apple", "quince", ""]


def identity(key, size=20):
    return fc.categorical_column_with_identity(key, size)


def rate(step):
    return 0.1


def only_table(column):
    (table,) = tables_of_columns([column])
    return table


def ids_of(column, strings):
    (feature,) = only_table(column).features
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ids = feature.to_ids(tf.constant(strings, tf.string))
        session.run(tf.compat.v1.tables_initializer())
        assert ids.dtype == tf.int64
        return session.run(ids).tolist()


def both(*keys, size=20, dimension=2, **kwargs):
    return fc.shared_embedding_columns(
        [identity(key, size) for key in keys],
        dimension,
        shared_embedding_collection_name="both",
        **kwargs,
    )


# Tables


@pytest.mark.parametrize(
    "categorical, length, name, feature",
    [
        (identity("item"), 0, "item", Feature("item", 0, None, "item_embedding", None)),
        (
            fc.weighted_categorical_column(identity("words"), "tf_idf"),
            0,
            "words_weighted_by_tf_idf",
            Feature("words", 0, "tf_idf", "words_weighted_by_tf_idf_embedding", None),
        ),
        (
            fc.sequence_categorical_column_with_identity("history", 20),
            3,
            "history",
            Feature("history", 3, None, "history_embedding", None),
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
    columns = fc.shared_embedding_columns(
        [identity("words"), fc.sequence_categorical_column_with_identity("history", 20)],
        4,
        "sqrtn",
        zeros,
        max_sequence_lengths=[0, 2],
        learning_rate_fn=rate,
    )
    (table,) = tables_of_columns(columns)
    assert table.name == "tbl_history_words_shared_embedding"
    assert table.scope_key == "history_words_shared_embedding"
    assert table.config == ee.TableConfig(20, 4, zeros, "sqrtn", learning_rate_fn=rate)
    assert table.features == (
        Feature("history", 2, None, "history_shared_embedding", None),
        Feature("words", 0, None, "words_shared_embedding", None),
    )


def test_tables_and_features_are_sorted():
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


def test_vocabulary_size_counts_buckets(tmp_path):
    (tmp_path / "words").write_text("apple\npear\nfig\n")
    for column, size in (
        (fc.categorical_column_with_hash_bucket("w", 7), 7),
        (fc.categorical_column_with_vocabulary_list("w", ["a", "b"]), 2),
        (fc.categorical_column_with_vocabulary_list("w", ["a", "b"], num_oov_buckets=3), 5),
        (fc.categorical_column_with_vocabulary_file("w", str(tmp_path / "words")), 3),
        (fc.categorical_column_with_vocabulary_file("w", str(tmp_path / "words"), 2, 4), 6),
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
        (
            [*both("a", "b"), *both("c", dimension=3)],
            "in two shapes: [20, 2], and [20, 3] by featur",
        ),
        ([*both("a", "b"), *both("c", size=30)], "in two shapes: [20, 2], and [30, 2] by feature"),
        (
            [*both("a", combiner="mean"), *both("b", combiner="sum")],
            "two values of combiner: 'mean', and 'sum' by feature 'b'.",
        ),
    ],
    ids=["column twice", "dimensions", "rows", "combiners"],
)
def test_conflicting_columns_are_refused(columns, message):
    assert message in harness.refusal(ValueError, tables_of_columns, columns)


def test_two_calls_of_one_shape_share_the_table():
    (table,) = tables_of_columns([*both("b"), *both("a")])
    assert (table.name, table.scope_key) == ("tbl_both", "both")
    assert [feature.key for feature in table.features] == ["a", "b"]


# Columns that have no table


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
    good = fc.embedding_column(identity("item"), 2)
    said = harness.refusal(TypeError, spec_of, [good, column])
    assert said.startswith("EmbeddingConfigSpec: All feature columns must be supported types, made")
    assert said.endswith(f"; got {column!r}.")


def test_spec_accepts_columns_of_the_model_off_a_tpu():
    columns = [fc.numeric_column("age"), tf.feature_column.embedding_column(identity("item"), 2)]
    assert spec_of(columns).feature_columns == columns
    assert tables_of_columns(columns, off_tpu=True) == []
    for column in columns:
        with pytest.raises(TypeError, match="Unsupported feature column"):
            tables_of_columns([column])


def test_shared_embeddings_of_tensorflow_2_are_refused():
    """tensorflow-estimator's spec refuses them too, and no other columns of `tf.feature_column`."""
    with tf.Graph().as_default():
        shared, _ = tf.feature_column.shared_embeddings([identity("a"), identity("b")], 2)
    columns = [fc.embedding_column(identity("word"), 2), shared]
    with pytest.raises(TypeError, match="^All feature columns must be supported types"):
        _tpu_estimator_embedding.EmbeddingConfigSpec(columns, ee.AdagradParameters(0.1))
    said = harness.refusal(TypeError, spec_of, columns)
    assert (
        "column 'a_shared_embedding' is a SharedEmbeddingColumn, which the model computes" in said
    )


# From strings to ids


def buckets(number, offset=0):
    return tf.strings.to_hash_bucket_fast(WORDS, number).numpy() + offset


def of_list(*words, **kwargs):
    return fc.categorical_column_with_vocabulary_list("word", words, **kwargs)


OUT = buckets(100, offset=3)
PEARS = [1, 0, -1, -1, 1, -1, -1]
LOOKUPS = {
    "hash": (fc.categorical_column_with_hash_bucket("word", 1000), buckets(1000)),
    "hash of a sequence": (
        fc.sequence_categorical_column_with_hash_bucket("word", 1000),
        buckets(1000),
    ),
    "weighted list": (fc.weighted_categorical_column(of_list("pear", "apple"), "weight"), PEARS),
    "shared list": (of_list("pear", "apple"), PEARS),
    "list": (of_list("fig", "apple", "pear"), [1, 2, 0, -1, 1, -1, -1]),
    "list with a default": (
        of_list("fig", "apple", "pear", default_value=2),
        [1, 2, 0, 2, 1, 2, 2],
    ),
    "list with buckets": (
        of_list("fig", "apple", "pear", num_oov_buckets=100),
        [1, 2, 0, OUT[3], 1, OUT[5], OUT[6]],
    ),
}


@pytest.mark.parametrize("what", LOOKUPS)
def test_strings_are_mapped_to_ids(what):
    categorical, expected = LOOKUPS[what]
    length = 3 if "sequence" in what else 0
    column = fc.embedding_column(categorical, 2, max_sequence_length=length)
    if "shared" in what:
        (column,) = fc.shared_embedding_columns([categorical], 2)
    assert ids_of(column, WORDS) == list(expected)
    assert ids_of(column, []) == []


def test_vocabulary_file_gives_ids(tmp_path):
    path = tmp_path / "words"
    path.write_text("plum\nquince\napple\nfig\n")
    whole = fc.categorical_column_with_vocabulary_file("word", str(path))
    assert ids_of(fc.embedding_column(whole, 2), WORDS) == [2, -1, 3, 0, 2, 1, -1]
    head = fc.categorical_column_with_vocabulary_file("word", str(path), 3, num_oov_buckets=50)
    out = buckets(50, offset=3)
    expected = [2, out[1], out[2], 0, 2, 1, out[6]]
    assert ids_of(fc.embedding_column(head, 2), WORDS) == expected


def test_a_missing_or_short_vocabulary_file_is_named(tmp_path):
    path = tmp_path / "words"
    path.write_text("plum\n")
    words = fc.categorical_column_with_vocabulary_file("word", str(path), 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid vocab_size in .*words"):
        ids_of(fc.embedding_column(words, 2), WORDS)
    path.unlink()
    with pytest.raises(tf.errors.NotFoundError, match=str(path)):
        ids_of(fc.embedding_column(words, 2), WORDS)


def test_integers_need_no_lookup():
    for column in (
        identity("item"),
        fc.categorical_column_with_hash_bucket("item", 5, dtype=tf.int64),
        fc.weighted_categorical_column(identity("item"), "weight"),
        fc.sequence_categorical_column_with_identity("item", 5),
    ):
        length = int("Sequence" in type(column).__name__)
        embedding = fc.embedding_column(column, 2, max_sequence_length=length)
        assert only_table(embedding).features[0].to_ids is None


# sequence_input_layer


def test_sequence_input_layer_refuses_a_column_without_sequence():
    column = fc.numeric_column("age")
    with tf.Graph().as_default():
        features = {"age": tf.zeros([2, 1])}
        message = harness.refusal(ValueError, fc.sequence_input_layer, features, [column])
    assert message.startswith("sequence_input_layer: every column must be a sequence column that")


def test_sequence_input_layer_refuses_different_lengths():
    """TensorFlow's own columns are accepted too: this test uses them."""
    columns = [
        tf.feature_column.embedding_column(
            tf.feature_column.sequence_categorical_column_with_identity(key, 5), 2
        )
        for key in ("a", "b")
    ]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features = {
            "a": tf.SparseTensor(*harness.sparse([[1, 2], [3]])),
            "b": tf.SparseTensor(*harness.sparse([[1, 2], [3, 4]])),
        }
        _, lengths = fc.sequence_input_layer(features, columns)
        session.run(tf.compat.v1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="lengths of the columns differ"):
            session.run(lengths)
