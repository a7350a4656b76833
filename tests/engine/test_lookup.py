"""Lookups of every input form equal TensorFlow's own lookup and NumPy."""

import itertools

import harness
import numpy as np
import pytest
import reference
import tensorflow as tf

import feature_columns as fc
from estimator_emb.engine import bad_input, inputs, lookup
from estimator_emb.spec.config import TableConfig
from estimator_emb.spec.resolved import Feature, Table, tables_of_columns


def make_table(vocabulary, dimension, combiner, features):
    return Table("t", TableConfig(vocabulary, dimension, combiner=combiner), tuple(features))


def run(table, features, weights, gradients):
    """Returns activations by feature, distinct ids and their row gradients."""
    read = bad_input.checked(
        [inputs.source_of(table, one, features).ids for one in table.features]
    )[0]
    rows, occurrences = lookup.distinct(read, table.config.combiner)
    values = tf.gather(weights, rows)
    activations = [lookup.combine(values, one) for one in occurrences]
    summed = lookup.row_gradients(gradients, occurrences, tf.size(rows), table.config.dimension)
    return activations, rows.numpy(), summed.numpy()


def test_sequence_ids_may_come_in_any_order():
    weights = np.arange(10, dtype=np.float32).reshape(5, 2)
    table = make_table(5, 2, "mean", [Feature("x", max_sequence_length=2)])
    ids = tf.SparseTensor([[1, 1], [0, 2], [1, 0], [0, 0]], tf.constant([4, 1, 2, 3]), [2, 3])
    gradient = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    (activation,), rows, summed = run(table, {"x": ids}, weights, [gradient])
    np.testing.assert_array_equal(activation, [[weights[3], [0, 0]], [weights[2], weights[4]]])
    slope = {3: [0, 1], 2: [4, 5], 4: [6, 7]}
    assert dict(zip(rows.tolist(), summed.tolist(), strict=True)) == slope


ANY_ORDER = [[2, 0], [0, 1], [2, 0], [0, 0]]
FORMS = {
    "vector": ([[0], [4], [0], [2]], None, tf.constant([0, 4, 0, 2])),
    "one wide": ([[0], [4], [0], [2]], None, tf.constant([[0], [4], [0], [2]])),
    "padded": ([[0, 3], [], [2, 2]], None, tf.constant([[0, 3, -1], [-1, -1, -1], [2, -1, 2]])),
    "weighted": (
        [[1, 3], [2]],
        [[1.0, 3.0], [5.0]],
        tf.constant([[1, 3], [2, -1]]),
        tf.constant([[1.0, 3.0], [5.0, 9.0]]),
    ),
    # Documented in `inputs.source_of`: each value counts, with the weight at the same place.
    "any order, several at one index": (
        [[1, 3], [], [4, 2]],
        [[2.0, 3.0], [], [0.5, 1.0]],
        tf.SparseTensor(ANY_ORDER, tf.constant([4, 1, 2, 3]), [3, 2]),
        tf.SparseTensor(ANY_ORDER, tf.constant([0.5, 2.0, 1.0, 3.0]), [3, 2]),
    ),
    **{
        f"a normaliser of zero by {weights}": (
            [[0, 1], [2]],
            [weights, [2.0]],
            tf.SparseTensor(*harness.sparse([[0, 1], [2]])),
            tf.SparseTensor(*harness.sparse([weights, [2.0]], np.float32)),
        )
        for weights in ([1.0, -1.0], [0.0, 0.0])
    },
}
"""Form -> each sample's ids and weights, and the tensors that hold them."""


@pytest.mark.parametrize(
    "form, combiner",
    [
        *itertools.product(FORMS, ("sum", "mean", "sqrtn")),
        *(("vector", None), ("one wide", None)),
    ],
)
def test_every_form_of_ids_equals_numpy(form, combiner):
    ids, given, *tensors = FORMS[form]
    features = dict(zip("xw", tensors, strict=False))
    weights = np.arange(10, dtype=np.float32).reshape(5, 2) + 1
    gradient = np.arange(1, 1 + 2 * len(ids), dtype=np.float32).reshape(-1, 2)
    table = make_table(5, 2, combiner, [Feature("x", weight_key="w" if given else None)])
    (activation,), rows, summed = run(table, features, weights, [gradient])
    lists = ids, given or harness.ones(ids)
    wanted = reference.combine(weights, *lists, combiner or "sum")
    np.testing.assert_allclose(activation, wanted, rtol=1e-6)
    slope = reference.row_gradients(*lists, gradient, combiner or "sum")
    assert sorted(rows.tolist()) == sorted(slope)
    np.testing.assert_allclose(summed, [slope[row] for row in rows], rtol=1e-6)


def table_of_words():
    word = fc.categorical_column_with_vocabulary_list("word", ["a", "b", "c"])
    (table,) = tables_of_columns([fc.embedding_column(word, 2, combiner="sum")])
    return table, np.arange(6, dtype=np.float32).reshape(3, 2)


def test_strings_are_looked_up_in_the_columns_vocabulary():
    table, weights = table_of_words()
    strings = [["b", "unknown", "c"], ["unknown"], []]
    padded = [["b", "unknown", "c"], ["unknown", "", ""], ["", "", ""]]
    for make, given in ((tf.ragged.constant, strings), (tf.constant, padded)):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            read = inputs.source_of(table, table.features[0], {"word": make(given)}).ids
            (read,), _ = bad_input.checked([read])
            rows, (occurrences,) = lookup.distinct([read], "sum")
            activation = lookup.combine(tf.gather(weights, rows), occurrences)
            session.run(tf.compat.v1.tables_initializer())
            np.testing.assert_array_equal(
                session.run(activation), [weights[1] + weights[2], [0, 0], [0, 0]]
            )


def test_integers_for_a_column_of_strings_are_its_ids():
    """Programs written for a TPU look words up in input_fn, and give the ids."""
    table, weights = table_of_words()
    features = {"word": tf.ragged.constant([[2, 1], [0]])}
    (activation,), _, _ = run(table, features, weights, [np.zeros([2, 2], np.float32)])
    np.testing.assert_array_equal(activation, [weights[2] + weights[1], weights[0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"id 3 is outside \[0, 3\)"):
        run(table, {"word": tf.constant([[3]])}, weights, [np.zeros([1, 2], np.float32)])
