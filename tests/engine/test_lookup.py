"""Lookups that `tests/laws`, which compares every form of ids with NumPy, does not draw.

Most are of columns that look up integers. On an emulated TPU the integers are ids already.
"""

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc
from estimator_emb.engine import bad_input, inputs, integers, lookup, update
from estimator_emb.spec.config import TableConfig
from estimator_emb.spec.resolved import Feature, Table, tables_of_columns

VOCABULARY = [30, 7, 2, 41]  # Ids 0 to 3. FORMS also has 99, which is unknown.


def read(column, value, **kwargs):
    """Returns the (ids, segments) of a feature after its integers are looked up."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tables = integers.looked_up(tables_of_columns([fc.embedding_column(column, 2, **kwargs)]))
        features = integers.as_strings(tables, {"x": value()})
        ids = inputs.source_of(tables[0], tables[0].features[0], features).ids
        session.run(tf.compat.v1.tables_initializer())
        segments = ids.samples if ids.segments is None else ids.segments
        return [array.tolist() for array in session.run((ids.ids, segments))]


def vocabulary(**kwargs):
    return fc.categorical_column_with_vocabulary_list("x", VOCABULARY, dtype=tf.int64, **kwargs)


FORMS = {
    "vector": lambda: tf.constant([7, 99, 41], tf.int32),
    "matrix": lambda: tf.constant([[7, -1], [99, -1], [41, 2]], tf.int64),
    "sparse": lambda: tf.SparseTensor(*harness.sparse([[7], [99], [41, 2]], np.int64)),
    "ragged": lambda: tf.ragged.constant([[7], [99], [41, 2]], tf.int32),
}


@pytest.mark.parametrize("form", FORMS)
def test_vocabulary_list_maps_integers_to_ids(form):
    expected = [1, 3] if form == "vector" else [1, 3, 2]
    samples = [0, 2] if form == "vector" else [0, 2, 2]
    assert read(vocabulary(), FORMS[form]) == [expected, samples]
    assert read(vocabulary(default_value=-7), FORMS[form]) == [expected, samples]
    expected.insert(1, 4)  # The bucket of 99 comes after the four integers.
    samples.insert(1, 1)
    assert read(vocabulary(num_oov_buckets=1), FORMS[form]) == [expected, samples]


def test_sequence_keeps_positions_of_unknown_integers():
    column = fc.sequence_categorical_column_with_vocabulary_list("x", VOCABULARY, dtype=tf.int64)
    value = harness.sparse([[99, 7], [99], [41, 2]], np.int64)  # 99 is unknown.
    ids, segments = read(column, lambda: tf.SparseTensor(*value), max_sequence_length=2)
    assert ids == [1, 3, 2]
    assert segments == [0 * 2 + 1, 2 * 2 + 0, 2 * 2 + 1]  # Sample * length + position.


def test_default_value_replaces_integers_outside():
    column = fc.categorical_column_with_identity("x", 5, default_value=3)
    value = tf.constant([[4, 5], [-2, -1]]).numpy()
    assert read(column, lambda: tf.constant(value)) == [[4, 3, 3], [0, 0, 1]]  # -1 is padding.


def test_hash_bucket_hashes_decimal_strings():
    column = fc.categorical_column_with_hash_bucket("x", 97, dtype=tf.int64)
    hashed = tf.strings.to_hash_bucket_fast(["7", "99", "41"], 97).numpy().tolist()
    assert read(column, FORMS["vector"]) == [hashed, [0, 1, 2]]


def test_strings_for_an_integer_column_are_refused():
    said = harness.refusal(ValueError, read, vocabulary(), lambda: tf.constant(["7"]))
    assert said.startswith("Feature x of table tbl_x: its column looks up integers, so its values")


@pytest.mark.parametrize("kind", ["vocabulary", "hash", "weighted", "sequence"])
@pytest.mark.parametrize("form", FORMS)
def test_integers_for_a_string_column_are_refused(form, kind):
    """TensorFlow's columns refuse them too. On an emulated TPU they are ids."""
    words, buckets = ["a", "b"], fc.categorical_column_with_hash_bucket("x", 9)
    column = {
        "vocabulary": fc.categorical_column_with_vocabulary_list("x", words),
        "hash": buckets,
        "weighted": fc.weighted_categorical_column(buckets, "w"),
        "sequence": fc.sequence_categorical_column_with_vocabulary_list("x", words),
    }[kind]
    limit = {"max_sequence_length": 2} if kind == "sequence" else {}
    table = "tbl_x_weighted_by_w" if kind == "weighted" else "tbl_x"
    dtype = "int64" if form in ("matrix", "sparse") else "int32"
    said = harness.refusal(ValueError, read, column, FORMS[form], **limit)
    begin = f"Feature x of table {table}: its column looks up strings, so its values must be "
    assert said.startswith(f"{begin}strings; got {dtype}.")


def run(table, features, weights, gradient):
    """Returns the activation of a table's only feature, distinct ids and their row gradients."""
    (feature,) = table.features
    ids, _ = bad_input.checked([inputs.source_of(table, feature, features).ids])
    rows, occurrences = lookup.distinct(ids, table.config.combiner)
    activation = lookup.combine(tf.gather(weights, rows), occurrences[0])
    summed = lookup.row_gradients([gradient], occurrences, tf.size(rows), table.config.dimension)
    return activation, rows.numpy(), summed.numpy()


@pytest.mark.parametrize("ids", [[0, 4, 0, 2], [[0], [4], [0], [2]]], ids=["vector", "one wide"])
def test_a_table_without_combiner_gives_each_sample_its_row(ids):
    weights = np.arange(10, dtype=np.float32).reshape(5, 2) + 1
    gradient = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
    table = Table("t", TableConfig(5, 2, combiner=None), (Feature("x"),))
    activation, rows, summed = run(table, {"x": tf.constant(ids)}, weights, gradient)
    np.testing.assert_array_equal(activation, weights[[0, 4, 0, 2]])
    slope = {0: gradient[0] + gradient[2], 4: gradient[1], 2: gradient[3]}
    assert sorted(rows.tolist()) == sorted(slope)
    np.testing.assert_array_equal(summed, [slope[row] for row in rows])


def test_integers_for_a_column_of_strings_are_its_ids():
    """Programs written for a TPU look words up in input_fn, and give the ids."""
    word = fc.categorical_column_with_vocabulary_list("word", ["a", "b", "c"])
    (table,) = tables_of_columns([fc.embedding_column(word, 2, combiner="sum")])
    weights = np.arange(6, dtype=np.float32).reshape(3, 2)
    features = {"word": tf.ragged.constant([[2, 1], [0]])}
    activation, _, _ = run(table, features, weights, np.zeros([2, 2], np.float32))
    np.testing.assert_array_equal(activation, [weights[2] + weights[1], weights[0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"id 3 is outside \[0, 3\)"):
        run(table, {"word": tf.constant([[3]])}, weights, np.zeros([1, 2], np.float32))


@pytest.mark.parametrize("accumulated, want", [(False, [[[3, 4]], [[1, 2]]]), (True, [[[4, 6]]])])
def test_each_core_updates_a_row_in_turn_unless_gradients_accumulate(accumulated, want):
    """Each of two cores has a sample with row 3. Core 3 % 2 comes first."""
    sgd = ee.StochasticGradientDescentParameters(0.1, use_gradient_accumulation=accumulated)
    table = Table("t", TableConfig(5, 2), (Feature("x"),), optimizer=sgd)
    ids = inputs.source_of(table, table.features[0], {"x": tf.constant([3, 3])}).ids
    rows, occurrences = lookup.distinct([ids], "sum")
    gradients = [tf.constant([[1.0, 2.0], [3.0, 4.0]])]
    updates = update.row_updates(table, rows, occurrences, gradients, num_cores=2)
    assert [one.gradients.numpy().tolist() for one in updates] == want
