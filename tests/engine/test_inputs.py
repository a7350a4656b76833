"""Each kind of bad input is an error that names feature, table and value."""

import dataclasses

import harness
import numpy as np
import pytest
import tensorflow as tf

from estimator_emb.engine import bad_input, inputs
from estimator_emb.engine.bad_input import readable
from estimator_emb.spec.config import TableConfig
from estimator_emb.spec.resolved import Feature, Table


def table_of(*features, combiner="mean", vocabulary=10):
    return Table("users", TableConfig(vocabulary, 2, combiner=combiner), features)


def check_fails(message, call, *args):
    """Asserts the message of a failed check, without the text that TensorFlow adds."""
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        call(*args)
    said = readable(error.value.message).split("assertion failed: [")[1]
    assert said.startswith(f"{message}]"), said


DROP = " TPUConfig(bad_ids='drop') leaves such ids out and counts them."


def check(table, features):
    return bad_input.checked(
        [inputs.source_of(table, one, features).ids for one in table.features]
    )[0]


X = Feature("x")
WEIGHTED = Feature("x", weight_key="w")
PAIR = tf.SparseTensor(*harness.sparse([[1], [2, 3]]))
OUTSIDE = f"Feature x of table users: id {{}} is outside [0, 10).{DROP}"


def weights(*rows):
    return tf.SparseTensor(*harness.sparse(rows, np.float32))


@pytest.mark.parametrize(
    "ids, bad",
    [
        (tf.constant([1, 10]), 10),
        (tf.constant([1, -1]), -1),
        (tf.constant([[1, 2], [-2, -1]]), -2),
        (tf.constant([2**31 + 5, 1], tf.int64), 2**31 + 5),
        (tf.SparseTensor([[0, 0], [0, 1]], tf.constant([9, 12]), [2, 2]), 12),
        (tf.ragged.constant([[1], [4, 11]]), 11),
    ],
)
def test_an_id_outside_stops_the_step(ids, bad):
    check_fails(OUTSIDE.format(bad), check, table_of(X), {"x": ids})


STRINGS = tf.SparseTensor(PAIR.indices, ["1", "-1", "3"], PAIR.dense_shape)
NUMBERS = Feature("x", weight_key="w", to_ids=lambda s: tf.strings.to_number(s, tf.int64))


@pytest.mark.parametrize(
    "feature, ids, given, message",
    [
        *(
            (WEIGHTED, PAIR, weights([1.0], [0.5, bad]), f": weight {bad} is not finite.")
            for bad in (np.nan, np.inf)
        ),
        (WEIGHTED, PAIR, weights([1.0], [0.5]), " has 3 ids but 2 weights."),
        (
            WEIGHTED,
            PAIR,
            weights([1.0, 2.0], [3.0]),
            ": its weights have other indices than its ids.",
        ),
        # Also if unknown strings are dropped before weights are checked.
        (NUMBERS, STRINGS, weights([1.0], [0.5]), " has 3 ids but 2 weights."),
    ],
)
def test_bad_weights_stop_the_step(feature, ids, given, message):
    said = f"Feature x of table users{message}"
    check_fails(said, check, table_of(feature), {"x": ids, "w": given})


def test_a_wrong_number_of_samples_stops_the_step():
    none = "Feature x of table users: the batch has no samples."
    check_fails(none, check, table_of(X), {"x": tf.zeros([0], tf.int64)})
    both = table_of(X, Feature("y"))
    other = "Feature y of table users has 3 samples, but feature x has 2. All features of a batch "
    other += "need the same number."
    check_fails(other, check, both, {"x": tf.constant([1, 2]), "y": tf.constant([1, 2, 3])})
    # The first of several problems is reported.
    bad = {"x": tf.constant([1, 20]), "y": tf.constant([30, 2])}
    check_fails(OUTSIDE.format(20), check, both, bad)


@pytest.mark.parametrize(
    "weights, message",
    [
        (np.ones([2, 3]), "Feature x of table users has 4 ids but 6 weights."),
        (np.ones([2, 1]), "Feature x of table users has 4 ids but 2 weights."),
        (
            np.ones([4, 1]),
            "Feature x of table users: its weights have other indices than its ids.",
        ),
    ],
)
def test_dense_weights_are_checked_at_run_time(weights, message):
    table = table_of(WEIGHTED)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features = {
            "x": tf.compat.v1.placeholder(tf.int64, [None, None]),
            "w": tf.compat.v1.placeholder(tf.float32, [None, None]),
        }
        (read,) = check(table, features)
        fed = {features["x"]: [[1, 2], [3, -1]], features["w"]: weights}
        check_fails(message, session.run, [read.ids, read.weights], fed)


@pytest.mark.parametrize("limit", [0, 2])
@pytest.mark.parametrize("index", [[3, 0], [-1, 0], [0, 2], [0, -1]])
def test_sparse_index_outside_the_dense_shape_is_refused(index, limit):
    """In a sequence, some of these indices would belong to another sample."""
    features = {"x": tf.SparseTensor([[0, 0], index, [2, 1]], tf.constant([1, 2, 3]), [3, 2])}
    message = (
        f"Feature x of table users: sparse index [{index[0]} {index[1]}] is outside the dense "
        "shape [3 2]."
    )
    check_fails(message, check, table_of(Feature("x", max_sequence_length=limit)), features)


@pytest.mark.parametrize("known_by", ["batch", "lengths"])
def test_a_sequence_of_another_batch_size_is_refused(known_by):
    table = table_of(Feature("x", max_sequence_length=3))
    read = inputs.source_of(table, table.features[0], {"x": PAIR}).ids
    if known_by == "lengths":
        # Batches of several cores, put together, have no static size.
        read = dataclasses.replace(read, static_batch=None)
    said = harness.refusal(ValueError, bad_input.with_batch_size, read, 4)
    assert said.startswith("Feature x of table users has 2 samples, but the batch size is 4.")


def test_two_ids_at_one_position_of_a_sequence_are_refused():
    features = {
        "x": tf.SparseTensor([[0, 0], [1, 2], [1, 1], [1, 2]], tf.constant([1, 2, 3, 4]), [2, 3])
    }
    twice = "Feature x of table users: two ids stand at position 2 of the sequence of sample 1."
    check_fails(twice, check, table_of(Feature("x", max_sequence_length=3)), features)
    (read,) = check(table_of(Feature("x", max_sequence_length=2)), features)  # Cut off.
    assert read.segments.numpy().tolist() == [0, 3]


@pytest.mark.parametrize("limit", [0, 2])
@pytest.mark.parametrize("shape", [[3], [3, 1, 1]])
def test_rank_of_sparse_ids_is_checked_at_run_time(shape, limit):
    table = table_of(Feature("x", max_sequence_length=limit))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ids = tf.compat.v1.sparse_placeholder(tf.int64)
        (read,) = check(table, {"x": ids})
        value = tf.compat.v1.SparseTensorValue([[0] * len(shape)], [1], shape)
        message = "Feature x of table users: its ids must have shape [batch, n]; got "
        message += f"[{' '.join(map(str, shape))}]."
        check_fails(message, session.run, [read.ids, read.segments], {ids: value})
        value = tf.compat.v1.SparseTensorValue([[1, 0]], [4], [2, 1])
        got = session.run([read.ids, read.segments], {ids: value})
    assert [one.tolist() for one in got] == [[4], [limit or 1]]


ONE = tf.SparseTensor([[0, 0]], [1], [1, 1])
DENSE, MATRIX = {"x": tf.constant([1])}, {"x": tf.constant([[1]])}
SEQUENCE = Feature("x", max_sequence_length=2, weight_key="w")


def column(of_ids):
    """Returns ids, or weights, of one sample, with a rank of 3."""
    return tf.SparseTensor([[0, 0, 0]], of_ids, [1, 1, 1])


@pytest.mark.parametrize(
    "feature, features, phrase",
    [
        (X, {"x": tf.constant(["a"])}, "ids must be int32 or int64; got strings. Strings need"),
        (X, {"x": tf.constant([1], tf.int16)}, "ids must be int32 or int64; got int16."),
        (X, {"x": tf.cast(ONE, tf.bool)}, "ids must be int32 or int64; got bool."),
        (X, {"x": tf.ragged.constant([[1]], tf.uint8)}, "ids must be int32 or int64; got uint8."),
        (X, {"x": tf.ragged.constant([[[1]]])}, "ragged ids must have shape [batch, n]; got (1, "),
        (X, {"x": tf.constant(1)}, "dense ids must have shape [batch] or [batch, n]; got ()."),
        (X, {"x": column([1])}, "sparse ids must have shape [batch, n]; got (1, 1, 1)."),
        (WEIGHTED, {**MATRIX, "w": tf.ragged.constant([[1.0]])}, "dense too, of the same shape"),
        (WEIGHTED, {"x": ONE, "w": column([1.0])}, "weights w must have shape [batch, n]; got (1"),
        (WEIGHTED, DENSE, "Cannot find weights w for weighted_categorical_column among"),
        (WEIGHTED, {"x": ONE, "w": tf.constant([[1.0]])}, "must be sparse too, with the same ind"),
        (WEIGHTED, {**DENSE, "w": tf.cast(ONE, tf.float32)}, "got a SparseTensor."),
        (WEIGHTED, {**DENSE, "w": tf.constant([[1.0, 2.0]])}, "of the ids, (1,); got (1, 2)."),
        (WEIGHTED, {**DENSE, "w": tf.constant(["1"])}, "weights w must be numbers; got string."),
        (SEQUENCE, {**DENSE, "w": tf.constant([1.0])}, "takes no weights; got weight key w."),
    ],
)
def test_wrong_types_and_shapes_are_refused(feature, features, phrase):
    said = harness.refusal(ValueError, inputs.source_of, table_of(feature), feature, features)
    assert said.startswith("Feature x of table users: ") and phrase in said


def test_combiner_none_takes_one_id_per_sample():
    table = table_of(X, combiner=None)
    said = harness.refusal(ValueError, check, table, {"x": tf.constant([[1, 2]])})
    assert said.startswith("Feature x of table users: its table has combiner None, so ids must")


def test_the_first_bad_id_of_several_tables_is_named():
    small, large = (
        Table(name, TableConfig(size, 2), ()) for name, size in (("s", 3), ("l", 2**40))
    )
    x = inputs.source_of(small, X, {"x": tf.constant([2, 0], tf.int32)})
    y = inputs.source_of(large, Feature("y"), {"y": tf.constant([2**40 - 1, 3], tf.int64)})
    z = inputs.source_of(small, Feature("z"), {"z": tf.constant([1, 7, -1, 4], tf.int64)})
    bad_input.checked([x.ids, y.ids])
    said = f"Feature z of table s: id 7 is outside [0, 3).{DROP}"
    check_fails(said, lambda: bad_input.checked([z.ids]))
    batch = inputs.source_of(small, Feature("z"), {"z": tf.constant([-5, 1], tf.int64)})
    said = f"Feature z of table s: id -5 is outside [0, 3).{DROP}"
    check_fails(said, lambda: bad_input.checked([x.ids, y.ids, batch.ids]))
