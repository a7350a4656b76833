"""Comparing two runs that the tests construct: matching names, differences and the verdict.

The runs are small checkpoints and numbers. No program runs.
"""

import itertools

import numpy as np
import pytest
import saved_values
import tensorflow as tf

from estimator_emb.cli.comparison import (
    CannotCompare,
    comparing,
    comparison_report,
    distances,
    finished,
    name_pairs,
)

TABLE = "dense_features/x_embedding/embedding_weights"
TOLERANCE = distances.Tolerance()

# ---- Names ------------------------------------------------------------------------------------


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
    found = name_pairs.match({a: [9, 4]}, {b: (9, 4)})
    assert found == name_pairs.Matching([(a, b, rule)], [], [], [], [])


@pytest.mark.parametrize(
    "a, b",
    [
        ({TABLE: [9, 4]}, {f"{TABLE}/part_0": [9, 5]}),
        ({TABLE: [9, 4]}, {f"{TABLE}/part_1": [9, 4]}),
        ({f"{TABLE}/Adam": [9, 4]}, {f"{TABLE}/Adam/v": [9, 4]}),
        ({"x/Adam": [9, 4]}, {"y/Adam/m": [9, 4]}),
        ({"dense/kernel": [9, 4]}, {"dense_1/kernel": [9, 4]}),
        ({"beta1_power": []}, {}),
    ],
)
def test_does_not_match_other_names(a, b):
    found = name_pairs.match(a, b)
    assert (found.pairs, found.left_out) == ([], [])
    assert (found.only_a, found.only_b) == (sorted(a), sorted(b))


# ---- Differences ------------------------------------------------------------------------------

INF, NAN = float("inf"), float("nan")
BFLOAT16 = tf.bfloat16.as_numpy_dtype


@pytest.mark.parametrize(
    "a, b, past, nan",
    [
        ([1.0, 2.0], [1.0, 2.0], 0, 0),
        ([1.0], [1.0 + 0.9e-4], 0, 0),
        ([1.0], [1.0 + 1.3e-4], 1, 0),
        ([0.0], [0.9e-5], 0, 0),
        ([0.0], [1.1e-5], 1, 0),
        ([NAN], [NAN], 0, 1),
        ([NAN, 1.0], [1.0, NAN], 2, 0),
        ([INF], [INF], 0, 0),
        ([INF], [-INF], 1, 0),
        ([INF], [1.0], 1, 0),
        ([], [], 0, 0),
        (1.0, 3.0, 1, 0),
        (np.array([1, 2]), np.array([1, 3]), 1, 0),
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
    found = distances.between([1.0, 4.0, 0.0], [1.5, 4.0, 1e-6], TOLERANCE)
    assert (found.absolute, found.relative) == (0.5, 0.5 / 1.5)
    found = distances.between(np.array([3]), np.array([5]), TOLERANCE)
    assert (found.absolute, found.relative) == (2.0, 0.4)


def test_small_variables_are_compared_by_their_own_size():
    moments, other = np.float32([1e-9, 1e-6, 0]), np.float32([1e-9, 1.1e-6, 0])
    of = distances.pieces_distance
    assert distances.between(moments, other, TOLERANCE).past == 0
    assert of(lambda: [(moments, other)], TOLERANCE).past == 1
    assert of(lambda: [(np.ones(2), np.ones(2)), (moments, other)], TOLERANCE).past == 0
    # Residues of gradients that are 0.
    assert of(lambda: [(np.float32([1e-12]), np.float32([-3e-12]))], TOLERANCE).past == 0


# ---- The verdict ------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path):
    """Returns a function that makes a run of three steps. `change` changes a step's variables."""
    count = itertools.count()

    def make(change=None, losses=None, metrics=None, steps=(1, 2, 3), exported=None):
        run, number = finished.Run(), next(count)
        for step in steps:
            variables = {
                "global_step": np.int64(step),
                "w": np.float32([step, 2.0]),
                TABLE: np.full([3, 2], 1.0 + step, np.float32),
            }
            if change is not None:
                change(variables, step)
            run.saved[step] = saved_values.write(tmp_path / f"{number}-{step}", variables)
            run.losses[step] = (losses or {}).get(step, 1.0 / step)
        run.evaluations["eval"] = {3: {"auc": np.float32(0.5)} if metrics is None else metrics}
        if exported is not None:
            run.exports["best"] = run.saved[exported]
        return run

    return make


def from_step(first, name, by):
    def change(variables, step):
        if step >= first:
            variables[name] = variables[name] + by

    return change


def to(**values):
    return lambda variables, step: variables.update(values)


def decide(a, b, ignore=()):
    comparison = comparing.compare(a, b, TOLERANCE, ignore)
    return comparison, comparing.verdict(comparison, TOLERANCE)


@pytest.mark.parametrize(
    "make_a, make_b, status, said",
    [
        ({}, {"change": from_step(2, "w", np.float32(1e-6))}, 0, "The sides are the same"),
        ({}, {"change": from_step(2, TABLE, np.float32(1e-2))}, 1, f"differ: {TABLE} are not"),
        ({"exported": 3}, {"exported": 3}, 0, "The sides are the same"),
        ({"exported": 3}, {}, 0, "The sides are the same"),
        ({"exported": 3}, {"exported": 2}, 1, "export best: w"),
    ],
)
def test_the_verdict_names_what_differs(made, make_a, make_b, status, said):
    comparison, (got, line) = decide(made(**make_a), made(**make_b))
    assert got == status and said in line
    body = comparison_report.body(comparison)
    assert "Losses of steps 1 to 3" in body and "eval at step 3: auc" in body
    assert ("from step 2" in body) == (TABLE in said)


WITHIN = "within rtol 0.0001 and atol 1e-05"


def test_verdict_shows_the_tolerance_used(made):
    """For a small variable, the tolerance is smaller than atol."""
    a, b = (made(to(b=np.float32([1e-3, near]))) for near in (0, 3.3e-8))
    assert decide(a, b)[1] == (
        1,
        f"The sides differ: b are not the same {WITHIN} x 0.001, the largest value of b, from step "
        "1 on.",
    )
    assert decide(a, made(to(b=np.float32([1e-3, 0.9e-8]))))[1][0] == 0


@pytest.mark.fast(3)
@pytest.mark.parametrize(
    "differs, problems",
    [
        ({"metrics": {}}, ["eval at step 3: only A has the metric auc."]),
        ({"change": to(w=np.zeros(3, "f4"))}, ["w has the shape (2,) on A, and (3,) on B."]),
        ({"change": to(w=np.zeros(2))}, ["w has the type float32 on A, and float64 on B."]),
        (
            {"steps": (1, 2)},
            [
                "A has losses of steps 1 to 3, B of steps 1, 2.",
                "A has checkpoints of steps 1 to 3, B of steps 1, 2.",
            ],
        ),
        ({"change": to(more=np.float32(1))}, ["Only B has the variable more."]),
        ({"change": lambda saved, step: saved.pop("w")}, ["Only A has the variable w."]),
    ],
)
def test_results_missing_on_one_side_are_a_difference(made, differs, problems):
    comparison, (status, line) = decide(made(), made(**differs))
    assert status == 1 and "that one side lacks or that do not fit" in line
    assert comparison.problems == problems
    assert all(one in comparison_report.body(comparison) for one in problems)


def test_ignored_results_are_no_difference(made):
    others = {"losses": {2: 9.0}, "metrics": {"auc": np.float32(0.9)}}
    other = made(lambda saved, step: saved.pop("w"), **others)
    comparison, (status, _) = decide(made(), other, ignore=["w", "auc", "loss"])
    assert status == 0 and not comparison.losses
    assert "Ignored, as asked: w" in comparison_report.body(comparison)
    with pytest.raises(CannotCompare, match="no variable is left to compare."):
        decide(made(), made(), ignore=["*"])


def test_nan_on_both_sides_is_inconclusive_on_one_side_a_difference(made):
    def change(variables, step):
        variables["w"] = np.float32([np.nan, 1])

    _, verdict = decide(made(change), made(change))
    assert verdict == (2, "Nothing can be said: w is NaN on both sides, from step 1 on.")
    _, verdict = decide(made(losses={2: NAN}), made(losses={2: NAN}))
    assert verdict == (2, "Nothing can be said: loss is NaN on both sides, from step 2 on.")
    _, (status, line) = decide(made(), made(losses={3: NAN}))
    assert status == 1 and "loss are not the same" in line


def test_control_characters_in_names_are_escaped(made):
    def change(variables, step):
        variables["\x1b[2J\nThe sides are the same"] = np.float32(step)

    def other(variables, step):
        variables["\x9b2J"] = np.float32(step)

    comparison, (_, line) = decide(made(change), made(other), ignore=["\x9b*"])
    lines = comparison_report.body(comparison).split("\n")
    assert all(one.isprintable() for one in lines)
    assert r"  Only A has the variable \x1b[2J\nThe sides are the same." in lines
    assert r"Ignored, as asked: \x9b2J" in lines


def test_names_that_mean_the_same_are_listed_with_their_rule(made):
    names = {f"v{index:02}": np.float32(index) for index in range(40)}

    def ours(variables, step):
        variables.update(names, **{f"{TABLE}/Adam/m": variables[TABLE]})

    def stock(variables, step):
        more = {f"{TABLE}/Adam": variables[TABLE], "beta1_power": np.float32(0.9)}
        variables.update(names, **more)

    comparison, (status, _) = decide(made(stock), made(ours))
    body = comparison_report.body(comparison)
    assert status == 0
    assert f"{TABLE}/Adam on A is {TABLE}/Adam/m on B" in body
    assert f"Rule: {name_pairs.RULES['slot']}." in body
    assert "Left out: beta1_power" in body and f"Rule: {name_pairs.RULES['beta']}." in body
    assert "more, at most 0 apart, 0 of them past the tolerance" in body


def test_draws_the_plot_of_a_comparison(made, tmp_path):
    pytest.importorskip("matplotlib")
    comparison, _ = decide(made(), made(from_step(2, "w", np.float32(0.1))))
    comparison_report.draw(comparison, ["--shards=1", "--shards=8"], str(tmp_path / "plot.png"))
    width, height = tf.io.decode_png((tmp_path / "plot.png").read_bytes()).shape[:2]
    assert width > 300 and height > 300
