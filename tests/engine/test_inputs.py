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
OUTSIDE = f": id {{}} is outside [0, 10).{DROP}"


def weights(*rows):
    return tf.SparseTensor(*harness.sparse(rows, np.float32))


STRINGS = tf.SparseTensor(PAIR.indices, ["1", "-1", "3"], PAIR.dense_shape)
NUMBERS = Feature("x", weight_key="w", to_ids=lambda s: tf.strings.to_number(s, tf.int64))
SEQUENCE = Feature("x", max_sequence_length=3)
OTHERS = {"x": PAIR, "w": weights([1.0, 2.0], [3.0])}


@pytest.mark.parametrize(
    "features, given, message",
    [
        ([X], {"x": tf.constant([2**31 + 5, 1], tf.int64)}, OUTSIDE.format(2**31 + 5)),
        ([X], {"x": tf.constant([[1, 2], [-2, -1]])}, OUTSIDE.format(-2)),
        ([X], {"x": tf.ragged.constant([[1], [4, 11]])}, OUTSIDE.format(11)),
        (
            [WEIGHTED],
            {"x": PAIR, "w": weights([1.0], [0.5, np.nan])},
            ": weight nan is not finite.",
        ),
        ([WEIGHTED], {"x": PAIR, "w": weights([1.0], [0.5])}, " has 3 ids but 2 weights."),
        # Also if unknown strings are dropped before weights are checked.
        ([NUMBERS], {"x": STRINGS, "w": weights([1.0], [0.5])}, " has 3 ids but 2 weights."),
        ([WEIGHTED], OTHERS, ": its weights have other indices than its ids."),
        ([X], {"x": tf.zeros([0], tf.int64)}, ": the batch has no samples."),
        (
            [SEQUENCE],  # This index would belong to another sample.
            {"x": tf.SparseTensor([[0, 0], [0, 2], [1, 1]], [1, 2, 3], [2, 2])},
            ": sparse index [0 2] is outside the dense shape [2 2].",
        ),
        (
            [SEQUENCE],
            {"x": tf.SparseTensor([[0, 0], [1, 2], [1, 1], [1, 2]], [1, 2, 3, 4], [2, 3])},
            ": two ids stand at position 2 of the sequence of sample 1.",
        ),
        # The first of several problems is reported.
        (
            [X, Feature("y")],
            {"x": tf.constant([1, 20]), "y": tf.constant([30, 2])},
            OUTSIDE.format(20),
        ),
    ],
)
def test_bad_values_stop_the_step(features, given, message):
    check_fails(f"Feature x of table users{message}", check, table_of(*features), given)


def test_features_of_other_batch_sizes_stop_the_step():
    other = (
        "Feature y of table users has 3 samples, but feature x has 2. All features of a batch "
        "need the same number."
    )
    both = {"x": tf.constant([1, 2]), "y": tf.constant([1, 2, 3])}
    check_fails(other, check, table_of(X, Feature("y")), both)


@pytest.mark.parametrize(
    "weights, message",
    [
        (np.ones([2, 1]), " has 4 ids but 2 weights."),
        (np.ones([4, 1]), ": its weights have other indices than its ids."),
    ],
)
def test_dense_weights_are_checked_at_run_time(weights, message):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features = {
            "x": tf.compat.v1.placeholder(tf.int64, [None, None]),
            "w": tf.compat.v1.placeholder(tf.float32, [None, None]),
        }
        (read,) = check(table_of(WEIGHTED), features)
        fed = {features["x"]: [[1, 2], [3, -1]], features["w"]: weights}
        said = f"Feature x of table users{message}"
        check_fails(said, session.run, [read.ids, read.weights], fed)


@pytest.mark.parametrize("known_by", ["batch", "lengths"])
def test_a_sequence_of_another_batch_size_is_refused(known_by):
    table = table_of(Feature("x", max_sequence_length=3))
    read = inputs.source_of(table, table.features[0], {"x": PAIR}).ids
    if known_by == "lengths":
        # Batches of several cores, put together, have no static size.
        read = dataclasses.replace(read, static_batch=None)
    said = harness.refusal(ValueError, bad_input.with_batch_size, read, 4)
    assert said.startswith("Feature x of table users has 2 samples, but the batch size is 4.")


def test_two_ids_at_one_position_may_be_cut_off():
    ids = tf.SparseTensor([[0, 0], [1, 2], [1, 1], [1, 2]], tf.constant([1, 2, 3, 4]), [2, 3])
    (read,) = check(table_of(Feature("x", max_sequence_length=2)), {"x": ids})
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
BOTH = Feature("x", max_sequence_length=2, weight_key="w")
DENSE, MATRIX = {"x": tf.constant([1])}, {"x": tf.constant([[1]])}


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
        (BOTH, {**DENSE, "w": tf.constant([1.0])}, "takes no weights; got weight key w."),
    ],
)
def test_wrong_types_and_shapes_are_refused(feature, features, phrase):
    said = harness.refusal(ValueError, inputs.source_of, table_of(feature), feature, features)
    assert said.startswith("Feature x of table users: ") and phrase in said


def test_combiner_none_takes_one_id_per_sample():
    table = table_of(X, combiner=None)
    said = harness.refusal(ValueError, check, table, {"x": tf.constant([[1, 2]])})
    assert said.startswith("Feature x of table users: its table has combiner None, so ids must")
