"""Each kind of bad input is an error that names feature, table and value, or is dropped."""

import dataclasses
import functools

import harness
import numpy as np
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.engine import bad_input, inputs, integers, lookup, structure_checks
from estimator_emb.engine.bad_input import readable
from estimator_emb.engine.bad_values import explanation
from estimator_emb.engine.dropped import DroppedIds
from estimator_emb.engine.engine import TablePlace, TableStep
from estimator_emb.engine.tables import sizes
from estimator_emb.spec import options
from estimator_emb.spec.config import TableConfig
from estimator_emb.spec.resolved import Feature, Table, tables_of


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


X, Y = Feature("x"), Feature("y")
WEIGHTED = Feature("x", weight_key="w")
PAIR = tf.SparseTensor(*harness.sparse([[1], [2, 3]]))
OUTSIDE = f": id {{}} is outside [0, 10).{DROP}"


def weights(*rows):
    return tf.SparseTensor(*harness.sparse(rows, np.float32))


STRINGS = tf.SparseTensor(PAIR.indices, ["1", "-1", "3"], PAIR.dense_shape)
NUMBERS = Feature("x", weight_key="w", to_ids=lambda s: tf.strings.to_number(s, tf.int64))
SEQUENCE = Feature("x", max_sequence_length=3)
OTHERS = {"x": PAIR, "w": weights([1.0, 2.0], [3.0])}
NAN = {"x": PAIR, "w": weights([1.0], [0.5, np.nan])}
MISPLACED = tf.SparseTensor([[0, 0], [0, 2], [1, 1]], [1, 2, 3], [2, 2])
REPEATED = tf.SparseTensor([[0, 0], [1, 2], [1, 1], [1, 2]], tf.constant([1, 2, 3, 4]), [3, 3])


@pytest.mark.parametrize(
    "features, given, message",
    [
        ([X], {"x": tf.constant([2**31 + 5, 1], tf.int64)}, OUTSIDE.format(2**31 + 5)),
        ([X], {"x": tf.constant([[1, 2], [-2, -1]])}, OUTSIDE.format(-2)),
        ([X], {"x": tf.constant([1, -1])}, OUTSIDE.format(-1)),  # Only matrices have padding.
        ([X], {"x": tf.ragged.constant([[1], [4, 11]])}, OUTSIDE.format(11)),
        ([WEIGHTED], NAN, ": weight nan is not finite."),
        ([WEIGHTED], {"x": PAIR, "w": weights([1.0], [0.5])}, " has 3 ids but 2 weights."),
        # Also if unknown strings are dropped before weights are checked.
        ([NUMBERS], {"x": STRINGS, "w": weights([1.0], [0.5])}, " has 3 ids but 2 weights."),
        ([WEIGHTED], OTHERS, ": its weights have other indices than its ids."),
        ([X], {"x": tf.zeros([0], tf.int64)}, ": the batch has no samples."),
        # This index would belong to another sample.
        ([SEQUENCE], {"x": MISPLACED}, ": sparse index [0 2] is outside the dense shape [2 2]."),
        ([SEQUENCE], {"x": REPEATED}, ": two ids stand at position 2 of the sequence of sample 1."),
        # The first of several problems is reported.
        ([X, Y], {"x": tf.constant([1, 20]), "y": tf.constant([30, 2])}, OUTSIDE.format(20)),
    ],
)
def test_bad_values_stop_the_step(features, given, message):
    check_fails(f"Feature x of table users{message}", check, table_of(*features), given)


def test_features_of_other_batch_sizes_stop_the_step():
    other = "Feature y of table users has 3 samples, but feature x has 2."
    other += " All features of a batch need the same number."
    both = {"x": tf.constant([1, 2]), "y": tf.constant([1, 2, 3])}
    check_fails(other, check, table_of(X, Y), both)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        unknown = {key: tf.compat.v1.placeholder(tf.int32, [None]) for key in both}
        first, _ = check(table_of(X, Y), unknown)
        check_fails(
            other, session.run, first.ids, {unknown[key]: both[key].numpy() for key in both}
        )


def test_dense_weights_are_checked_at_run_time():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features = {
            "x": tf.compat.v1.placeholder(tf.int64, [None, None]),
            "w": tf.compat.v1.placeholder(tf.float32),
        }
        (read,) = check(table_of(WEIGHTED), features)
        for weights, message in (
            (np.ones([4]), ": its weights w must have the rank of its ids; got shape [4]."),
            (np.ones([2, 1]), " has 4 ids but 2 weights."),
            (np.ones([4, 1]), ": its weights have other indices than its ids."),
        ):
            fed = {features["x"]: [[1, 2], [3, -1]], features["w"]: weights}  # -1 counts.
            said = f"Feature x of table users{message}"
            check_fails(said, session.run, [read.ids, read.weights], fed)
        assert session.run(read.ids, {features["x"]: [[4]], features["w"]: [[0.5]]}) == [4]


@pytest.mark.parametrize("known_by", ["batch", "lengths"])
def test_a_sequence_of_another_batch_size_is_refused(known_by):
    table = table_of(Feature("x", max_sequence_length=3))
    read = inputs.source_of(table, table.features[0], {"x": PAIR}).ids
    if known_by == "lengths":
        # Batches of several cores, put together, have no static size.
        read = dataclasses.replace(read, static_batch=None)
    said = harness.refusal(ValueError, bad_input.with_batch_size, read, 4)
    assert said.startswith("Feature x of table users has 2 samples, but the batch size is 4.")


def test_two_ids_at_one_position_are_accepted_if_they_are_cut_off():
    short = Feature("x", max_sequence_length=2)  # Cuts position 2.
    (read,) = check(table_of(short), {"x": REPEATED})
    assert read.samples.numpy().tolist() == [0, 1]
    assert read.lengths.numpy().tolist() == [1, 2, 0]  # Sample 2 is empty.
    assert read.segments.numpy().tolist() == [0 * 2 + 0, 1 * 2 + 1]  # Sample * length + position.
    outside = tf.SparseTensor(*harness.sparse([[1, 2, 30]]))  # The id that is cut off counts too.
    assert not all(
        bad_input.reading_holds([inputs.source_of(table_of(short), short, {"x": outside}).ids])
    )


@pytest.mark.parametrize("limit", [0, 2])
def test_rank_of_sparse_ids_is_checked_at_run_time(limit):
    table = table_of(Feature("x", max_sequence_length=limit))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ids = tf.compat.v1.sparse_placeholder(tf.int64)
        given = inputs.source_of(table, table.features[0], {"x": ids}).ids
        ((read,), _) = bad_input.checked([given])
        for shape in ([3], [3, 1, 1]):
            value = tf.compat.v1.SparseTensorValue([[0] * len(shape)], [1], shape)
            message = "Feature x of table users: its ids must have shape [batch, n]; got "
            message += f"[{' '.join(map(str, shape))}]."
            check_fails(message, session.run, [read.ids, read.segments], {ids: value})
            # Ops that read the parts before other checks wait for this check too.
            check_fails(message, session.run, given.batch, {ids: value})
        value = tf.compat.v1.SparseTensorValue([[1, 0]], [4], [2, 1])
        got = session.run([read.ids, read.segments], {ids: value})
    assert [one.tolist() for one in got] == [[4], [limit or 1]]  # Sample 1, or its position 0.


RAGGED = functools.partial(tf.RaggedTensor.from_row_splits, validate=False)
PLACES, IDS, SHAPE = [[0, 0], [1, 2]], [5, 6], [2, 3]


@pytest.mark.parametrize(
    "parts, want",
    [
        # Sparse: has the shape two sizes, has each id a place, are sizes >= 0, and samples <= 2?
        ((PLACES, IDS, SHAPE), [True, True, True, True]),
        ((np.zeros([0, 2]), [], [0, 0]), [True, True, True, True]),
        *(((PLACES, IDS, shape), [False, True, True, True]) for shape in ([2], [2, 3, 4], [])),
        *(
            ((places, IDS, SHAPE), [True, False, True, True])
            for places in (PLACES[:1], [[0], [1]], [[[0, 0]], [[1, 2]]], [0, 1], 0)
        ),
        ((PLACES, [[5], [6]], SHAPE), [True, False, True, True]),
        ((PLACES, IDS, [2, -1]), [True, True, False, True]),
        ((PLACES, IDS, [3, 2]), [True, True, True, False]),
        # Ragged: do row splits begin with 0, never decrease, and end with the number of ids?
        ((IDS, [0, 1, 1, 2]), [True]),
        *(((IDS, s), [False]) for s in ([1, 2], [-1, 0, 2], [0, 2, 1, 2], [0, 2, 3], [])),
        (([], []), [False]),
    ],
)
def test_parts_of_unknown_shape_must_fit(parts, want, monkeypatch):
    monkeypatch.setattr(sizes, "physical", lambda: 2 * 2 * 8)  # Two samples, dimension 2.
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = [tf.compat.v1.placeholder(tf.int64) for _ in parts]
        value = tf.SparseTensor(*fed) if len(fed) == 3 else RAGGED(*fed)
        problems = structure_checks.problems(inputs.source_of(table_of(X), X, {"x": value}).ids)
        held = session.run([holds for holds, _ in problems], dict(zip(fed, parts, strict=True)))
    assert held == want


@pytest.mark.parametrize(
    "memory, dimension, length, most",  # A sample takes 8 bytes per number: gradients too.
    [(8 * 20, 2, 0, 10), (8 * 20, 2, 3, 3), (8, 2, 0, 1), (2**60, 1, 0, 2**31 - 1)],
)
def test_the_largest_batch_fits_into_memory(memory, dimension, length, most, monkeypatch):
    """The largest batch has at least one sample, and at most as many as an int32 counts."""
    monkeypatch.setattr(sizes, "physical", lambda: memory)
    table, feature = Table("t", TableConfig(5, dimension), ()), Feature("x", length)
    assert structure_checks.most_samples(table, feature) == most


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


def test_features_of_a_step_must_be_a_dict():
    """A TensorServingInputReceiver gives a single tensor."""
    spec = harness.tables_spec({"x": TableConfig(50_000, 2)}, ee.AdagradParameters(0.5))
    step = TableStep(spec, tables_of(spec), training=False, place=TablePlace(shards=2))
    many = "1 table, 50,000 rows, 100,000 parameters, 0.8 MB with slots (Adagrad x 1)"
    on = "the host, over 2 parameter servers"
    assert step.describe() == f"Embedding tables train on {on}: {many}."
    said = harness.refusal(ValueError, step.enqueue, tf.constant([1]))
    assert said.endswith("input_fn must return its features as a dict; got a tensor.")


def test_combiner_none_takes_one_id_per_sample():
    table = table_of(X, combiner=None)
    said = harness.refusal(ValueError, check, table, {"x": tf.constant([[1, 2]])})
    assert said.startswith("Feature x of table users: its table has combiner None, so ids must")


SMALL, LARGE = (Table(name, TableConfig(size, 2), ()) for name, size in (("s", 3), ("l", 2**40)))


def read_ids(table, key, ids, dtype=tf.int64, drop=None):
    return inputs.source_of(table, Feature(key), {key: tf.constant(ids, dtype)}, drop).ids


def test_the_first_bad_id_of_several_tables_is_named():
    """Each id is compared with the size of its own table, though all ids are checked at once."""
    good = [read_ids(SMALL, "x", [2, 0], tf.int32), read_ids(LARGE, "y", [2**40 - 1, 3])]
    bad_input.checked(good)
    for others, ids, bad in (([], [1, 3, -1, 4], 3), (good, [-5, 1], -5)):
        said = f"Feature z of table s: id {bad} is outside [0, 3).{DROP}"
        check_fails(said, bad_input.checked, [*others, read_ids(SMALL, "z", ids)])


def test_a_negative_id_is_dropped_even_if_the_dtype_has_no_id_that_is_too_large():
    drop = DroppedIds(count=False).drop
    assert read_ids(LARGE, "z", [0, -5, 1], tf.int32, drop).ids.numpy().tolist() == [0, 1]
    largest = Table("t", TableConfig(2**31 - 1, 2), ())  # All int32 but one are its ids.
    assert read_ids(largest, "z", [2**31 - 1, 3], tf.int32, drop).ids.numpy().tolist() == [3]


def arrays(indices, ids, shape=(2, 4), places=None):
    """Returns a SparseTensor's arrays. `places` also has the indices of values without an id."""
    parts = {"values": ids, "indices": np.reshape(indices, [-1, 2]), "shape": shape}
    return {key: np.array(part) for key, part in parts.items()} | {"places": places}


CUT = ([0, 0], [1, 2], [1, 3], [1, 3]), [0, 4, 1, 1]  # Two ids are cut off.
BESIDE = inputs.SparsePlaces(np.array([[0, 0], [0, 4]]), np.array([2, 4]))  # A column too far.
# A feature after it was read. "uncut" has the ids before a sequence was cut. "fit" has the numbers
# of ids and weights, and whether their indices are the same.
READY = {"ids": np.array([0]), "segments": np.array([0]), "batch": 2}


@pytest.mark.parametrize(
    "given, message",
    [
        (arrays(*CUT), None),
        (arrays([], [], (2, 0)), None),
        (arrays([], [], (0, 3)), ": the batch has no samples."),
        (arrays([], [], (3, 3)), ": the dense shape [3 3] of its ids has more samples than 2:"),
        (arrays([], [], (-4, 3)), ": the dense shape [-4 3] of its ids is negative."),
        (arrays([], [], [3]), ": its ids must have shape [batch, n]; got [3]."),
        (arrays([0, 0], [1, 2]), ": its ids have 2 values, but indices of shape [1 2]:"),
        (arrays([0, 0], [[1]]), ": its ids have 1 values, but indices of shape [1 2]:"),
        (arrays(*CUT, places=BESIDE), ": sparse index [0 4] is outside the dense shape [2 4]."),
        (arrays([0, 2, 0, 2], [3, 4]), ": two ids stand at position 2 of the sequence of sample 0"),
        ({"values": np.array([[1, -1], [0, 4]])}, None),
        ({"values": np.array([[1, -1], [-2, 5]])}, ": id -2 is outside [0, 5)."),
        ({"values": np.array([[5], [1]])}, ": id 5 is outside [0, 5)."),
        ({"values": np.array([[1]])}, " has 1 samples, but feature a has 2."),
        (READY | {"uncut": np.array([0, 7])}, ": id 7 is outside [0, 5)."),
        (READY | {"fit": (3, 2, True)}, " has 3 ids but 2 weights."),
        (READY | {"fit": (3, 3, False)}, ": its weights have other indices than its ids."),
        (READY | {"weights": np.array([np.nan])}, ": weight nan is not finite."),
        (READY | {"fit": (1, 1, True), "weights": np.array([2.0])}, None),
    ],
)
def test_the_first_problem_is_found_in_arrays(given, message):
    """`explanation` searches the arrays of feature a, which is good, and those `given` for x.

    A message of None: it finds no problem if the batch size is 2 or unknown.
    """
    table, value = Table("t", TableConfig(5, 2), ()), tf.constant([[0]])
    features = Feature("a"), Feature("x", max_sequence_length=3)
    sources = [inputs.Source(table, one, value, None) for one in features]
    search = sources, [{"values": np.array([[0], [4]])}, given]
    explain = functools.partial(explanation, *search, [2, 2])  # Memory holds 2 samples of each.
    if message is None:
        assert explain(size=None) is explain(size=2) is None
        assert "a of table t has 2 samples, but the batch size is 4." in explain(size=4)
    else:
        assert explain(size=None).startswith(f"Feature x of table t{message}")


# Bad ids are dropped and counted if the program asks for it.

ROWS = np.arange(10, dtype=np.float32).reshape(5, 2) + 1
NONE = [0, 0]  # The activation of a sample without an id.
SPARSE = {
    "x": tf.SparseTensor(*harness.sparse([[1, 7, 2], [-1], [3]])),
    "w": tf.SparseTensor(*harness.sparse([[1.0, np.nan, 3.0], [5.0], [2.0]], np.float32)),
}


@pytest.mark.parametrize(
    "combiner, how, features, want",
    [
        (None, {}, {"x": [4, 5, -1]}, [ROWS[4], NONE, NONE]),
        ("mean", {}, {"x": [[4], [2**40], [-3]]}, [ROWS[4], NONE, NONE]),
        ("mean", {"weight_key": "w"}, SPARSE, [(ROWS[1] + 3 * ROWS[2]) / (1 + 3), NONE, ROWS[3]]),
        ("sum", {"max_sequence_length": 2}, SPARSE, [[ROWS[1], NONE], [NONE] * 2, [ROWS[3], NONE]]),
    ],
)
def test_a_dropped_id_gives_zeros(combiner, how, features, want):
    feature = Feature("x", **how)
    table = Table("t", TableConfig(5, 2, combiner=combiner), (feature,))
    given = {
        key: tf.convert_to_tensor(one) if isinstance(one, list) else one
        for key, one in features.items()
    }
    source = inputs.source_of(table, feature, given, DroppedIds(count=False).drop)
    rows, (occurrences,) = lookup.distinct(bad_input.checked([source.ids])[0], combiner)
    assert not set(rows.numpy()) - set(range(5))
    np.testing.assert_allclose(lookup.combine(tf.gather(ROWS, rows), occurrences), want)


def test_a_column_may_lack_its_weights_until_the_batch_is_read():
    """Reading the batch names the missing weights. Reshaping ids for that must not fail before."""
    table = Table("t", TableConfig(5, 2), (Feature("x", column_name="c", weight_key="w"),))
    shaped = integers.as_matrices([table], {"x": tf.zeros([1, 1, 3])})
    assert shaped.keys() == {"x"} and shaped["x"].shape == [1, 3]


def test_only_dense_ids_of_columns_become_matrices():
    """TensorFlow's columns take dense [batch, 1, n]. Other features are read as they were given."""
    sparse = Feature("s", column_name="c"), {"s": tf.SparseTensor([[0, 0, 0]], [1], [2, 1, 3])}
    sequence = Feature("z", column_name="d", max_sequence_length=2), {"z": tf.zeros([2, 1, 3])}
    for feature, given in (sparse, sequence, (X, {"x": tf.zeros([2, 1, 3])})):
        assert integers.as_matrices([table_of(feature)], given) == given


def test_counts_of_dropped_ids_are_no_variables_of_the_model():
    with tf.Graph().as_default():
        dropping = DroppedIds(count=True).drop
        assert inputs.source_of(table_of(X), X, {"x": tf.constant([1])}, dropping).ids is not None
        (count,) = tf.compat.v1.local_variables()
        assert count.dtype == tf.int64 and not count.trainable


def make(model_dir, bad_ids):
    table = ee.TableConfig(5, 2, harness.initializer(ROWS), "sum")
    sgd = ee.StochasticGradientDescentParameters(0.5)
    spec = harness.tables_spec(dict.fromkeys("xy", table), sgd, clipping_limit=5.0)
    model_fn = harness.gradient_model_fn(["x", "y"])
    run, tpu = {**harness.SILENT, "save_summary_steps": 1}, {"bad_ids": bad_ids}
    tpu["table_summaries"] = True
    return harness.estimator(model_fn, spec, model_dir, 2, run=run, tpu=tpu)


def batch(x, y):
    return {"x": np.array(x), "y": np.array(y)}, {"x": GRADIENT, "y": GRADIENT}


GRADIENT = np.array([[1, -1], [4, -4]], np.float32)
# Of batches x, y. The tables have the rows 0 to 4, so the bad ids are 5, -7, 99 and 5.
BATCHES = harness.input_fn_of([batch([1, 5], [1, 1]), batch([-7, 99], [3, 5])])


def test_all_calls_drop_and_count_bad_ids_and_an_export_drops_them(tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO", "estimator_emb")
    estimator = make(tmp_path, "drop")
    estimator.train(BATCHES, steps=2)
    want = {"x": ROWS.copy(), "y": ROWS.copy()}
    want["x"][1] -= 0.5 * GRADIENT[0]  # SGD of rate 0.5.
    want["y"][[1, 3]] -= 0.5 * np.array([GRADIENT.sum(0), GRADIENT[0]])  # Both samples read row 1.
    harness.assert_same(harness.saved(tmp_path, 2), {"global_step": 2, **want}, 1e-7, 0.0)
    of_steps = harness.summaries(tmp_path)
    counted = [[of_steps[step][f"bad_ids/{name}"] for name in "xy"] for step in (1, 2)]
    assert counted == [[1, 0], [1 + 2, 0 + 1]]  # Since the training began.
    names = "dropped_ids", "ids", "distinct_ids", "rows_updated", "gradient_norm", "row_norm"
    for step, name, *values in (
        (1, "x", 1, 1, 1, 1, 2**0.5, np.linalg.norm(want["x"][1])),  # Gradient [1, -1].
        (1, "y", 0, 2, 1, 1, 50**0.5, np.linalg.norm(want["y"][1])),  # Sum [5, -5]: the limits.
        (2, "x", 2, 0, 0, 0, 0, 0),
        (2, "y", 1, 1, 1, 1, 2**0.5, np.linalg.norm(want["y"][3])),
    ):
        figures = dict(zip(names, values, strict=True), learning_rate=0.5, share_clipped=0)
        found = {key: of_steps[step][f"embedding/{name}/{key}"] for key in figures}
        harness.assert_same(found, figures, 1e-6, 0.0)
    message = "Ids outside their vocabulary were left out: 3 of table x, 1 of table y."
    assert [line for line in harness.said(caplog) if "left out" in line] == [message]

    caplog.clear()
    x = np.array([want["x"][1], [0, 0], [0, 0], [0, 0]])
    y = np.array([*want["y"][[1, 1, 3]], [0, 0]])
    metrics = estimator.evaluate(BATCHES, steps=2)
    losses = np.sum(((x + y) * np.tile(GRADIENT, [2, 1])).reshape(2, -1), 1)  # Of each batch.
    np.testing.assert_allclose(metrics["loss"], np.mean(losses))
    predictions = list(estimator.predict(BATCHES))
    np.testing.assert_allclose([one["x"] for one in predictions], x)
    np.testing.assert_allclose([one["y"] for one in predictions], y)
    assert [line for line in harness.said(caplog) if "left out" in line] == [message] * 2

    monkeypatch.setenv("ESTIMATOR_EMB_BAD_IDS", "drop")
    receive = harness.receiver_of(x=(tf.int64, [None]), y=(tf.int64, [None]))
    serve = harness.exported(make(tmp_path, None), tmp_path / "export", receive)
    served = serve(x=tf.constant([2, 5], tf.int64), y=tf.constant([-1, 3], tf.int64))
    np.testing.assert_allclose(served["x"], [ROWS[2], [0, 0]])
    np.testing.assert_allclose(served["y"], [[0, 0], want["y"][3]])


def test_the_environment_turns_dropping_on(monkeypatch):
    monkeypatch.delenv("ESTIMATOR_EMB_BAD_IDS", raising=False)
    for variable, want in ((None, "error"), ("drop", "drop"), ("", "error")):
        if variable is not None:
            monkeypatch.setenv("ESTIMATOR_EMB_BAD_IDS", variable)
        asked = [options.asked_bad_ids(make(None, given).config) for given in (None, "error")]
        assert asked == [want, "error"]
