"""How `estimator-emb compare` matches the names of variables, and measures differences."""

import numpy as np
import pytest
import tensorflow as tf

from estimator_emb.cli.comparison import distances, name_pairs

TABLE = "dense_features/x_embedding/embedding_weights"
TOLERANCE = distances.Tolerance()  # Of a and b, 1e-5 + 1e-4 max(|a|, |b|).


@pytest.mark.parametrize(
    "a, b, rule",
    [
        (TABLE, TABLE, ""),
        (TABLE, f"{TABLE}/part_0", "part"),
        (f"{TABLE}/part_0", TABLE, "part"),
        (f"{TABLE}/Adam", f"{TABLE}/Adam/m", "slot"),
        (f"{TABLE}/Adam_1", f"{TABLE}/Adam/v", "slot"),
        (f"{TABLE}/Adam/v", f"{TABLE}/Adam_1", "slot"),
        (f"{TABLE}/RMSProp_1", f"{TABLE}/RMSProp/mom", "slot"),
        (f"{TABLE}/Adadelta_1", f"{TABLE}/Adadelta/updates", "slot"),
        (f"{TABLE}/Adam", f"{TABLE}/part_0/Adam/m", "part+slot"),
        (f"{TABLE}/part_0/Adagrad", f"{TABLE}/Adagrad", "part"),
    ],
)
def test_matches_names_that_mean_the_same(a, b, rule):
    """Pairs names of a TPU, such as table/part_0 and Adam/m, with those of a CPU."""
    found = name_pairs.match({a: [9, 4]}, {b: (9, 4)})
    assert found == name_pairs.Matching([(a, b, rule)], [], [], left_out=[], ignored=[])


@pytest.mark.parametrize(
    "a, b",
    [
        ({TABLE: [9, 4]}, {f"{TABLE}/part_0": [9, 5]}),  # Two shapes.
        ({TABLE: [9, 4]}, {f"{TABLE}/part_1": [9, 4]}),  # A table, and the second part of one.
        ({f"{TABLE}/Adam": [9, 4]}, {f"{TABLE}/Adam/v": [9, 4]}),  # The slots m and v.
        ({"x/Adam": [9, 4]}, {"y/Adam/m": [9, 4]}),  # Slots of two tables.
        ({"dense/kernel": [9, 4]}, {"dense_1/kernel": [9, 4]}),  # Two layers.
        ({"beta1_power": []}, {}),  # Left out only beside matched slots of Adam.
    ],
)
def test_does_not_match_other_variables(a, b):
    found = name_pairs.match(a, b)
    assert (found.pairs, found.left_out) == ([], [])
    assert (found.only_a, found.only_b) == (sorted(a), sorted(b))


INF, NAN = float("inf"), float("nan")
BFLOAT16 = tf.bfloat16.as_numpy_dtype


@pytest.mark.parametrize(
    "a, b, past, nan",  # past: values beyond the tolerance. nan: values that are NaN in both.
    [
        ([1.0, 2.0], [1.0, 2.0], 0, 0),
        ([1.0], [1.0 + 0.9e-4], 0, 0),
        ([1.0], [1.0 + 1.3e-4], 1, 0),
        ([0.0], [0.9e-5], 0, 0),
        ([0.0], [1.1e-5], 1, 0),
        ([NAN], [NAN], 0, 1),
        ([NAN, 1.0], [1.0, NAN], 2, 0),  # NaN in one of them is beyond any tolerance.
        ([INF], [INF], 0, 0),
        ([INF], [-INF], 1, 0),
        ([INF], [1.0], 1, 0),
        ([], [], 0, 0),
        (1.0, 3.0, 1, 0),
        (np.array([1, 2]), np.array([1, 3]), 1, 0),  # Integers and texts must be equal.
        (np.array([True]), np.array([False]), 1, 0),
        (np.array([b"a", b"b"]), np.array([b"a", b"c"]), 1, 0),
        (np.array([2**62], np.int64), np.array([2**62 + 1], np.int64), 1, 0),
        (np.array([1.0], BFLOAT16), np.array([1.00001], BFLOAT16), 0, 0),
        (np.array([1.0], BFLOAT16), np.array([1.5], BFLOAT16), 1, 0),
    ],
)
def test_distances_beyond_the_tolerance_are_counted(a, b, past, nan):
    for one, other in ((a, b), (b, a)):
        found = distances.between(one, other, TOLERANCE)
        assert (found.past, found.nan) == (past, nan)
        assert found.absolute > 0 or not past


def test_distances_are_absolute_and_relative():
    """The relative distance is that of values beyond the tolerance, so not of 0 and 1e-6."""
    found = distances.between([1.0, 4.0, 0.0], [1.5, 4.0, 1e-6], TOLERANCE)
    assert (found.absolute, found.relative) == (0.5, 0.5 / 1.5)
    found = distances.between(np.array([3]), np.array([5]), TOLERANCE)
    assert (found.absolute, found.relative) == (5 - 3, (5 - 3) / 5)


def test_small_variables_are_compared_by_their_own_size():
    """For all pieces of a variable, atol is multiplied by the variable's largest value.

    This factor is at least 1e-6, because a gradient that should be 0 contains rounding noise.
    """
    small, other = np.float32([1e-9, 1e-6, 0]), np.float32([1e-9, 1.1e-6, 0])

    def past(*pieces):
        return distances.pieces_distance(lambda: pieces, TOLERANCE).past

    assert distances.between(small, other, TOLERANCE).past == 0
    assert past((small, other)) == 1
    assert past((np.ones(2), np.ones(2)), (small, other)) == 0  # The largest value is 1.
    # Both are noise: they differ by 4e-12, and 1e-5 x 1e-6 is 1e-11.
    assert past((np.float32([1e-12]), np.float32([-3e-12]))) == 0
