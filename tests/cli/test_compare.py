# SPDX-License-Identifier: Apache-2.0
"""estimator-emb compare: its arguments, the matching of names, the verdict. Most runs no program.

What sides have recorded is made here of NumPy arrays and small checkpoints. The programs of the
slow tests are `compared_program.py`, with flags that make it wrong.
"""

import contextlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import tensorflow as tf

from estimator_emb.checkpoints.files import values
from estimator_emb.checkpoints.reading.differences import pairs
from estimator_emb.cli import compare as compare_lib
from estimator_emb.cli import parsers, sides
from estimator_emb.comparison import comparing, distances, names, plot, recorded, text

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = pathlib.Path(__file__).with_name("compared_program.py")
TABLE = "dense_features/x_embedding/embedding_weights"
TOLERANCE = distances.Tolerance()

# ---- Arguments --------------------------------------------------------------------------------


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("print('ran')")
    return str(path)


def sides_of(*args):
    options = parsers.parse("compare", list(args))
    return sides.both(parsers.compare(), options)


def test_settings_are_options_and_environment(script, tmp_path):
    other = tmp_path / "other.py"
    other.write_text("")
    a, b = sides_of(
        "--a=--shards=1 --device host",
        "--b=ESTIMATOR_EMB_NATIVE=0 --shards=8 NOTE='two words'",
        f"--b-python={sys.executable}",
        f"--b-program={other}",
        "--b-flags=--rate=0.5 --name='a b'",
        "--tf-v1",
        script,
        "--rate=0.1",
        "--a=the program's own",
    )
    assert (a.options, a.environment) == (("--tf-v1", "--shards=1", "--device", "host"), {})
    assert a.program == (script, "--rate=0.1", "--a=the program's own") and a.python is None
    assert b.options == ("--tf-v1", "--shards=8")
    assert b.environment == {"ESTIMATOR_EMB_NATIVE": "0", "NOTE": "two words"}
    assert b.program[1:] == (*a.program[1:], "--rate=0.5", "--name=a b")
    assert b.program[0] == str(other) and b.python == sys.executable
    assert not a.stock and not b.stock


def test_stock_takes_environment_only(script):
    a, b = sides_of("--a=stock OMP_NUM_THREADS=1", "--b", "", script)
    assert a.stock and a.environment == {"OMP_NUM_THREADS": "1"} and not b.stock


def test_a_module_and_finished_runs(tmp_path):
    a, _ = sides_of("-m", "package.program", "--steps=3")
    assert a.program == ("-m", "package.program", "--steps=3")
    a, b = sides_of(f"--a-model-dir={tmp_path}", f"--b-model-dir={tmp_path}", "--rtol=0")
    assert (a.model_dir, b.model_dir) == (str(tmp_path), str(tmp_path))


WRONG = {
    "--b=--shards=two @script": "--b: argument --shards: must be an integer >= 1; got 'two'",
    "--a=--steps-limit=3 @script": (
        "--a: --steps of estimator-emb compare limits the steps of both sides"
    ),
    "--b=shards @script": (
        "--b: 'shards' is no option of estimator-emb run, no NAME=value and not 'stock'"
    ),
    "--b='-m that' @script": ("--b: -m names the program, which stands at the end of the command"),
    "--b=--nothing @script": "--b: unrecognized arguments: --nothing",
    "--b=--help @script": (
        "--b takes the options of estimator-emb run; see estimator-emb run --help"
    ),
    "--b='stock --shards=2' @script": (
        "--b: stock runs the program as Python does, and takes none of --shards=2"
    ),
    "--a=stock --tf-v1 @script": ("--a: stock runs the program as Python does, without --tf-v1"),
    "--a=stock --map=gs://b=@folder @script": (
        "--a: stock runs the program as Python does, without --map"
    ),
    "--b='--shards=2 --device=tpu' @script": (
        "--b: --shards is the number of emulated cores: it needs --device=host"
    ),
    "--b=ESTIMATOR_EMB_NATVE=0 @script": (
        "--b: ESTIMATOR_EMB_NATVE means nothing; ESTIMATOR_EMB_ is followed by BAD_IDS, CACHE, "
        "COMPILER_PYTHON, DEVICE, FULL_TRACEBACK, NATIVE, NATIVE_SANITIZE, SHARDS, TABLES, "
        "TABLE_SUMMARIES, TOPOLOGY, WAIT_LIMIT"
    ),
    "--b=TF_CONFIG={} @script": "--b: TF_CONFIG names a cluster, and a side is one process",
    '--b="\'x" @script': '--b: "\'x" cannot be read: No closing quotation',
    "--b-python=/nowhere/python @script": ("--b-python: there is no interpreter '/nowhere/python'"),
    "--b-program=nowhere.py @script": "--b-program: there is no file 'nowhere.py'",
    "--b-program=@script -m program": (
        "--b-program names a file in place of SCRIPT.py, not of a module"
    ),
    "nowhere.py": "there is no file 'nowhere.py'",
    "": "name one program: SCRIPT.py or -m MODULE",
    "--steps=0 @script": "argument --steps: must be an integer >= 1; got '0'",
    "--rtol=-1 @script": "argument --rtol: must be a number >= 0; got '-1'",
    "--atol=nan @script": "argument --atol: must be a number >= 0; got 'nan'",
    "--a-model-dir=@folder": (
        "give --b-model-dir too: two finished runs are compared, or two new ones"
    ),
    "--a-model-dir=@folder --b-model-dir=nowhere": ("--b-model-dir: there is no folder 'nowhere'"),
    "--a-model-dir=@folder --b-model-dir=@folder @script": (
        "--a-model-dir and --b-model-dir compare finished runs: leave out a program"
    ),
    "--a-model-dir=@folder --b-model-dir=@folder --b=--shards=2": (
        "--a-model-dir and --b-model-dir compare finished runs: leave out --b"
    ),
    "--a-model-dir=@folder --b-model-dir=@folder --steps=2": (
        "--a-model-dir and --b-model-dir compare finished runs: leave out --steps"
    ),
    "--plot=x.pdf @script": "--plot: 'x.pdf' must end in .png",
    "--plot=nowhere/x.png @script": "--plot: there is no folder 'nowhere'",
    "--start=@folder @script": "--start: there is no checkpoint '@folder'",
    "@broken": "@broken, line 1: invalid syntax: x = = 1",
}


@pytest.mark.parametrize("command", WRONG)
def test_what_is_wrong_is_a_line_and_status_2(command, script, tmp_path, capsys, monkeypatch):
    broken = tmp_path / "broken.py"
    broken.write_text("x = = 1")
    monkeypatch.setattr(sides.Runner, "run", lambda *_: pytest.fail("a side was run"))
    places = {"@script": script, "@folder": str(tmp_path), "@broken": str(broken)}
    message = WRONG[command]
    for place, path in places.items():
        command, message = (one.replace(place, path) for one in (command, message))
    with pytest.raises(SystemExit) as ended:
        compare_lib.main(parsers.parse("compare", shlex.split(command)))
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"estimator-emb compare: error: {message}"


def test_a_cluster_is_refused(script, capsys, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{}")
    with pytest.raises(SystemExit):
        sides_of(script)
    assert "TF_CONFIG names a cluster, and a side is one process: unset it" in (
        capsys.readouterr().err
    )


def test_plots_need_matplotlib_before_anything_runs(script, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(compare_lib.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        compare_lib.main(parsers.parse("compare", ["--plot=x.png", script]))
    assert "--plot needs matplotlib: pip install 'estimator-emb[plot]'" in capsys.readouterr().err


def test_all_environment_variables_are_known():
    """Those that this package reads: a misspelt one would change nothing."""
    found = set()
    for path in (ROOT / "estimator_emb").rglob("*.py"):
        found |= set(re.findall(r"[\"'](ESTIMATOR_EMB_[A-Z_]*[A-Z])[\"']", path.read_text()))
    assert {"ESTIMATOR_EMB_DEVICE", "ESTIMATOR_EMB_NATIVE"} <= found <= set(sides.VARIABLES)


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
        (f"{TABLE}/RMSProp", f"{TABLE}/RMSProp/ms", "slot"),
        (f"{TABLE}/RMSProp_1", f"{TABLE}/RMSProp/mom", "slot"),
        (f"{TABLE}/Adadelta", f"{TABLE}/Adadelta/accumulators", "slot"),
        (f"{TABLE}/Adadelta_1", f"{TABLE}/Adadelta/updates", "slot"),
        (f"{TABLE}/Adam", f"{TABLE}/part_0/Adam/m", "part+slot"),
        (f"{TABLE}/part_0/Adagrad", f"{TABLE}/Adagrad", "part"),
    ],
)
def test_names_that_mean_the_same(a, b, rule):
    found = names.match({a: [9, 4]}, {b: (9, 4)})
    assert found == names.Matching([(a, b, rule)], [], [], [], [])


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
def test_names_that_do_not(a, b):
    found = names.match(a, b)
    assert (found.pairs, found.left_out) == ([], [])
    assert (found.only_a, found.only_b) == (sorted(a), sorted(b))


def test_equal_names_of_other_shapes_are_a_pair_that_does_not_fit():
    assert names.match({"w": [2]}, {"w": [3]}).pairs == [("w", "w", "")]


def test_beta_powers_are_left_out_where_slots_are_named_as_on_a_tpu():
    stock = {TABLE: [9, 4], f"{TABLE}/Adam": [9, 4], f"{TABLE}/Adam_1": [9, 4]}
    stock |= {"beta1_power": [], "training/beta2_power_1": []}
    ours = {TABLE: [9, 4], f"{TABLE}/Adam/m": [9, 4], f"{TABLE}/Adam/v": [9, 4]}
    found = names.match(stock, ours)
    assert found.left_out == ["beta1_power", "training/beta2_power_1"]
    assert (found.only_a, found.only_b) == ([], [])
    # A dense Adam that one side lacks is no such case.
    found = names.match({**stock, "w/Adam": [2]}, {TABLE: [9, 4]})
    assert found.left_out == [] and "beta1_power" in found.only_a


def test_ignored_names_are_of_either_side():
    found = names.match({"a/x": [], "b": []}, {"b": [], "c/x": []}, ["*/x"])
    assert found == names.Matching([("b", "b", "")], [], [], [], ["a/x", "c/x"])


# ---- Differences ------------------------------------------------------------------------------

INF, NAN = float("inf"), float("nan")


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
        (np.array([b"a"], object), np.array([b"a"], object), 0, 0),
        (np.array([2**62], np.int64), np.array([2**62 + 1], np.int64), 1, 0),
    ],
)
def test_between(a, b, past, nan):
    for one, other in ((a, b), (b, a)):
        found = distances.between(one, other, TOLERANCE)
        assert (found.past, found.nan, found.count) == (past, nan, np.size(a))
        assert found.absolute > 0 or not past


def test_how_far():
    found = distances.between([1.0, 4.0, 0.0], [1.5, 4.0, 1e-6], TOLERANCE)
    assert (found.absolute, found.relative) == (0.5, 0.5 / 1.5)
    found = distances.between(np.array([3]), np.array([5]), TOLERANCE)
    assert (found.absolute, found.relative) == (2.0, 0.4)


def test_small_variables_are_compared_by_their_own_size():
    moments, other = np.float32([1e-9, 1e-6, 0]), np.float32([1e-9, 1.1e-6, 0])
    of = distances.of_pieces
    assert distances.between(moments, other, TOLERANCE).past == 0
    assert of(lambda: [(moments, other)], TOLERANCE).past == 1
    assert of(lambda: [(np.ones(2), np.ones(2)), (moments, other)], TOLERANCE).past == 0
    # What is left of gradients that are 0.
    assert of(lambda: [(np.float32([1e-12]), np.float32([-3e-12]))], TOLERANCE).past == 0


def test_bfloat16_is_a_float():
    a, b = (np.array([x], tf.bfloat16.as_numpy_dtype) for x in (1.0, 1.5))
    assert distances.between(a, a, TOLERANCE).past == 0
    assert distances.between(a, b, TOLERANCE).absolute == 0.5


# ---- Checkpoints ------------------------------------------------------------------------------


def save(prefix, variables, slices=""):
    keys = list(variables)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=keys,
        shape_and_slices=[slices] * len(keys),
        tensors=[tf.constant(variables[key]) for key in keys],
    )
    return str(prefix)


def test_variables_are_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(values, "PIECE_BYTES", 64)
    table = np.arange(60, dtype=np.float32).reshape(15, 4)
    whole = values.Values(save(tmp_path / "whole", {"table": table, "bias": table[0, :1]}))
    # In two slices, as a partitioned variable is saved.
    parts = [
        save(tmp_path / "0", {"table": table[:6]}, "15 4 0,6:0,4"),
        save(tmp_path / "1", {"table": table[6:]}, "15 4 6,9:0,4"),
    ]
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=parts, destination_prefix=str(tmp_path / "sliced")
    )
    sliced = values.Values(str(tmp_path / "sliced"))
    pieces = list(pairs(whole, "table", sliced, "table"))
    assert [len(piece) for piece, _ in pieces] == [4, 4, 4, 3]
    for read in zip(*pieces, strict=True):
        assert np.array_equal(np.concatenate(read), table)
    assert len(list(pairs(whole, "bias", whole, "bias"))) == 1


# ---- The verdict ------------------------------------------------------------------------------


class Made:
    """Makes runs of three steps, whose variables, losses and metrics a test changes."""

    def __init__(self, directory):
        self._directory = directory
        self._count = 0

    def __call__(self, change=None, losses=None, metrics=None, steps=(1, 2, 3)):
        self._count += 1
        training = recorded.Training()
        for step in (0, *steps):
            variables = {
                "global_step": np.int64(step),
                "w": np.float32([step, 2.0]),
                TABLE: np.full([3, 2], 1.0 + step, np.float32),
            }
            if change is not None:
                change(variables, step)
            path = save(self._directory / f"{self._count}-{step}", variables)
            if step:
                training.saved[step] = path
                training.losses[step] = (losses or {}).get(step, 1.0 / step)
            else:
                training.start = path
        given = {"auc": np.float32(0.5)} if metrics is None else metrics
        return recorded.Run(
            "",
            [training],
            [recorded.Outputs("evaluation 1", given, {"the step": 3})],
            [recorded.Outputs("predict 1", {"y": np.zeros([4, 1])}, {"the number": 4})],
        )


@pytest.fixture
def made(tmp_path):
    return Made(tmp_path)


def from_step(first, name, by):
    def change(variables, step):
        if step >= first:
            variables[name] = variables[name] + by

    return change


def having(**variables):
    """A change that sets variables, and leaves those out that are None."""

    def change(all_of_them, step):
        all_of_them.update(variables)
        for name in [name for name, value in all_of_them.items() if value is None]:
            del all_of_them[name]

    return change


def decide(a, b, repeated=None, ignore=()):
    comparison = comparing.compare(a, b, TOLERANCE, ignore)
    again = None if repeated is None else comparing.compare(a, repeated, TOLERANCE, ignore)
    return comparison, comparing.verdict(comparison, again, TOLERANCE)


WITHIN = "within rtol 0.0001 and atol 1e-05"


def test_the_same(made):
    comparison, verdict = decide(made(), made(from_step(2, "w", np.float32(1e-6))))
    assert verdict == (0, f"The sides are the same {WITHIN}.")
    body = text.body(comparison, None)
    assert "Losses of steps 1 to 3" in body and "evaluation 1: auc" in body
    assert len(comparison.items()) == 6


def test_a_variable_that_differs(made):
    a, b = made(), made(from_step(2, TABLE, np.float32(1e-2)))
    comparison, verdict = decide(a, b, made())
    assert verdict == (
        1,
        f"The sides differ: {TABLE} are not the same {WITHIN}, from step 2 on.",
    )
    assert "from step 2" in text.body(comparison, None)


DIFFERENT = {
    "evaluation 1: only A has the metric auc.": {"metrics": {}},
    "w has the shape (2,) on A, and (3,) on B.": {"change": having(w=np.zeros(3, np.float32))},
    "w has the type float32 on A, and float64 on B.": {"change": having(w=np.zeros(2))},
    "A has losses of steps 1 to 3, B of steps 1, 2.\n"
    "A has checkpoints of steps 1 to 3, B of steps 1, 2.": {"steps": (1, 2)},
    "Only B has the variable more.": {"change": having(more=np.float32(1))},
    "Only A has the variable w.": {"change": having(w=None)},
    "A has 1 evaluation, B 0.": lambda run: run.evaluations.clear(),
    "predict 1: the number is 4 on A, and 5 on B.": lambda run: run.predictions[0].counts.update(
        {"the number": 5}
    ),
    "predict 1: y has the shape (4, 1) on A, and (3, 1) on B.": lambda run: run.predictions[
        0
    ].values.update(y=np.zeros([3, 1])),
    "A trains 1 model directory, B 2.": lambda run: run.trainings.append(run.trainings[0]),
}
"""Problems -> how B is made, or what changes it."""


@pytest.mark.parametrize("problems", DIFFERENT)
def test_what_one_side_lacks_is_a_difference(made, problems):
    how = DIFFERENT[problems]
    other = made() if callable(how) else made(**how)
    if callable(how):
        how(other)
    comparison, (status, line) = decide(made(), other, made())
    assert status == 1 and "that one side lacks or that do not fit" in line
    assert comparison.problems == problems.split("\n")
    assert all(one in text.body(comparison, None) for one in comparison.problems)


def test_unless_it_is_ignored(made):
    other = made(having(w=None), metrics={"auc": np.float32(0.9)})
    comparison, (status, _) = decide(made(), other, ignore=["w", "auc"])
    assert status == 0
    assert "Ignored, as asked: w" in text.body(comparison, None)
    with pytest.raises(recorded.CannotCompare, match="no variable is left to compare."):
        decide(made(), made(), ignore=["*"])


def test_a_variable_that_no_checkpoint_holds(made):
    a, b = made(), made()
    a.trainings[0].unsaved = b.trainings[0].unsaved = ["left/out"]
    comparison, (status, _) = decide(a, b)
    assert status == 1 and comparison.problems == [
        "left/out is in no checkpoint: it could not be given the same start, nor compared."
    ]
    assert decide(a, b, ignore=["left/*"])[1][0] == 0


def test_a_side_that_starts_from_a_checkpoint_of_its_own():
    side = sides.Side("B", "", program=("program.py",))
    events = [{"event": "training", "number": 0}, {"event": "training", "number": 1}]
    start = {"event": "start", "number": 0}
    assert compare_lib._starts([*events[:1], start], side) == {0: start}
    with pytest.raises(sides.CannotRun) as raised:
        compare_lib._starts([*events, start], side)
    assert str(raised.value) == (
        "B: program.py restored a checkpoint of its own before its first step, so that the sides "
        "have not the same start."
    )


def test_nan_on_both_sides_says_nothing(made):
    change = having(w=np.float32([np.nan, 1]))
    _, verdict = decide(made(change), made(change))
    assert verdict == (2, "Nothing can be said: w is NaN on both sides, from step 1 on.")
    _, verdict = decide(made(losses={2: NAN}), made(losses={2: NAN}))
    assert verdict == (2, "Nothing can be said: loss is NaN on both sides, from step 2 on.")


def test_nan_on_one_side_is_a_difference(made):
    _, (status, line) = decide(made(), made(losses={3: NAN}))
    assert status == 1 and "loss are not the same" in line


def test_chance_is_told_from_a_difference(made):
    by_chance = made(from_step(2, "w", np.float32(0.1)))
    differs = made(from_step(1, "w", np.float32(0.1)))
    _, (status, line) = decide(made(), by_chance, by_chance)
    assert status == 2
    assert line.startswith(
        "Nothing can be said: run twice, side A differs from itself from step 2 on, and the sides "
        "from step 2 on."
    )
    # The sides differ when A does not yet differ from itself.
    _, (status, _) = decide(made(), differs, by_chance)
    assert status == 1
    # They are the same, but by chance.
    _, (status, line) = decide(made(), made(), by_chance)
    assert (status, line) == (
        2,
        "Nothing can be said: run twice, side A differs from itself from step 2 on.",
    )
    _, (status, line) = decide(made(), differs, made(steps=(1, 2)))
    assert status == 2 and line.startswith("Nothing can be said: side A differs from itself. A has")


def test_a_training_that_changes_nothing_cannot_be_compared(made):
    still = having(**{"w": np.zeros(2, np.float32), TABLE: np.zeros([3, 2], np.float32)})
    with pytest.raises(recorded.CannotCompare) as raised:
        comparing.check_change(made(still), "A")
    assert str(raised.value) == "A: training changes no variable but the global step."
    comparing.check_change(made(), "A")


def test_many_variables_are_not_all_listed(made):
    change = having(**{f"v{index:02}": np.float32(index) for index in range(40)})
    comparison, _ = decide(made(change), made(change))
    body = text.body(comparison, None)
    assert "and 18 more, at most 0 apart, 0 of them past the tolerance" in body


def test_names_move_no_cursor(made):
    change = having(**{"\x1b[2J\nThe sides are the same": np.float32(1)})
    other = having(**{"\x9b2J": np.float32(1)})
    comparison, (_, line) = decide(made(change), made(other), ignore=["\x9b*"])
    lines = text.body(comparison, None).split("\n")
    assert all(one.isprintable() for one in lines)
    assert r"  Only A has the variable \x1b[2J\nThe sides are the same." in lines
    assert r"Ignored, as asked: \x9b2J" in lines


def test_the_rules_of_names_are_listed(made):
    def ours(variables, step):
        variables[f"{TABLE}/Adam/m"] = variables[TABLE]

    def stock(variables, step):
        variables[f"{TABLE}/Adam"] = variables[TABLE]
        variables["beta1_power"] = np.float32(0.9)

    comparison, (status, _) = decide(made(stock), made(ours))
    body = text.body(comparison, None)
    assert status == 0
    assert f"{TABLE}/Adam on A is {TABLE}/Adam/m on B" in body
    assert f"Rule: {names.RULES['slot']}." in body
    assert "Left out: beta1_power" in body and f"Rule: {names.RULES['beta']}." in body


def test_a_plot(made, tmp_path):
    pytest.importorskip("matplotlib")
    comparison, _ = decide(made(), made(from_step(2, "w", np.float32(0.1))))
    plot.draw(comparison, ["--shards=1", "--shards=8"], str(tmp_path / "plot.png"))
    width, height = tf.io.decode_png((tmp_path / "plot.png").read_bytes()).shape[:2]
    assert width > 300 and height > 600


# ---- Finished runs ----------------------------------------------------------------------------


def finished(directory, name, steps, by=0.0):
    folder = directory / name
    folder.mkdir()
    prefixes = [
        save(
            folder / f"model.ckpt-{step}",
            {"global_step": np.int64(step), "w": np.float32([step + by])},
        )
        for step in steps
    ]
    tf.compat.v1.train.update_checkpoint_state(str(folder), prefixes[-1], prefixes)
    with tf.compat.v2.summary.create_file_writer(str(folder)).as_default():
        for step in steps:
            tf.summary.experimental.write_raw_pb(_loss(0.5 + by), step=step)
    return f"{folder}"


def _loss(value):
    summary = tf.compat.v1.Summary(
        value=[tf.compat.v1.Summary.Value(tag="loss", simple_value=value)]
    )
    return summary.SerializeToString()


@pytest.mark.parametrize(
    "steps, by, status, said",
    [
        ((0, 5), 0.0, 0, "The sides are the same"),
        ((0, 5), 0.5, 1, "The sides differ: loss, w are not the same"),
        ((0, 5, 9), 0.0, 1, "A has checkpoints of steps 0, 5, B of steps 0, 5, 9."),
        ((7,), 0.0, 2, "there is no step of which both sides have the variables."),
    ],
)
def test_finished_runs(tmp_path, capsys, steps, by, status, said):
    a, b = finished(tmp_path, "a", (0, 5)), finished(tmp_path, "b", steps, by)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    options = parsers.parse("compare", [f"--a-model-dir={a}", f"--b-model-dir={b}"])
    assert compare_lib.main(options) == status
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    assert before == sorted(path.name for path in tmp_path.rglob("*"))


# ---- The files of a side ----------------------------------------------------------------------

FILES = """
import os, pathlib, shutil, sys
sys.path.insert(0, sys.argv[1])
import side_files
folder, user = map(pathlib.Path, sys.argv[2:4])
files = side_files.Files(str(folder))
side_files._redirect_python(files)
import functools
sys.addaudithook(functools.partial(side_files._refuse, files))
os.chdir(user)

assert open("read.txt").read() == "mine"
open("new.txt", "w").write("new")
assert open(user / "new.txt").read() == "new" and os.path.exists("new.txt")
with open("read.txt", "a") as file:
    file.write(" and more")
assert pathlib.Path("read.txt").read_text() == "mine and more"
os.makedirs("deep/er", exist_ok=True)
pathlib.Path("deep/er/x").write_text("x")
assert os.listdir("deep/er") == ["x"] and os.path.getsize("deep/er/x") == 1
os.rename("deep/er/x", "deep/y")
assert not os.path.exists("deep/er/x") and os.path.isfile("deep/y")
shutil.rmtree("model")
assert not os.path.exists("model/checkpoint") and not os.path.isdir("model")
os.mkdir("model")
assert os.listdir("model") == []
os.remove("gone.txt")
assert not os.path.exists("gone.txt")
try:
    os.remove("never.txt")
except FileNotFoundError:
    pass
else:
    raise AssertionError
assert sorted(os.listdir(".")) == ["deep", "model", "new.txt", "read.txt"]
import _io
try:
    _io.FileIO("behind.txt", "w")
except PermissionError as error:
    print(error)
files.hide(str(user))
assert os.listdir(user) and not os.path.exists("gone.txt")
"""


def test_a_program_writes_no_file_of_the_users(tmp_path):
    user, folder = tmp_path / "user", tmp_path / "side"
    (user / "model").mkdir(parents=True)
    folder.mkdir()
    for name in ("read.txt", "gone.txt", "model/checkpoint"):
        (user / name).write_text("mine")
    here = ROOT / "estimator_emb" / "comparison" / "processes"
    done = subprocess.run(
        [sys.executable, "-c", FILES, str(here), str(folder), str(user)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    refused = f"estimator-emb compare does not let a program write '{user}/behind.txt'."
    assert done.stdout == refused + "\n"
    left = {str(path.relative_to(user)) for path in user.rglob("*")}
    assert left == {"read.txt", "gone.txt", "model", "model/checkpoint"}
    assert all((user / name).read_text() == "mine" for name in left - {"model"})


@pytest.mark.slow
def test_tensorflow_writes_no_file_of_the_users(tmp_path):
    user, folder = tmp_path / "user", tmp_path / "side"
    folder.mkdir()
    names = ("there/mine.txt", "read.txt", "renamed.txt", "removed.txt", "folder/file", "tree/file")
    for name in names:
        (user / name).parent.mkdir(parents=True, exist_ok=True)
        (user / name).write_text("mine")
    (user / "users").mkdir()
    save(user / "users" / "model.ckpt", {"v": np.float32([7, 7])})
    before = {path: path.is_file() and path.read_bytes() for path in user.rglob("*")}
    program = pathlib.Path(__file__).with_name("writing_program.py")
    done = subprocess.run(
        [sys.executable, str(program), str(folder), str(user)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert {path: path.is_file() and path.read_bytes() for path in user.rglob("*")} == before


# ---- Programs ---------------------------------------------------------------------------------


def run(directory, *arguments, **kwargs):
    """Runs the command in a folder of its own, whose one file it must leave as it is."""
    model = directory / "model"
    model.mkdir(exist_ok=True)
    (model / "mine.txt").write_text("mine")
    (directory / "tmp").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "estimator_emb", "compare", "--steps=3", *arguments]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ESTIMATOR_EMB")}
    kept.pop("TF_USE_LEGACY_KERAS", None)  # Set by the import of this package.
    environment = {
        **kept,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(directory / "tmp"),
        "ESTIMATOR_EMB_NATIVE": "0",
    }
    if kwargs.pop("started", False):
        return subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            # Where the tests are a background job, it is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    assert [path.name for path in model.iterdir()] == ["mine.txt"], done.stderr
    left = [path.name for path in (directory / "tmp").glob("estimator-emb*")]
    assert all(name.endswith(".log") for name in left), left
    return done


PROGRAM_AND_FLAGS = [str(PROGRAM), "--model_dir=model"]


@pytest.mark.slow
@pytest.mark.parametrize("clip, status", [(None, 0), (0.001, 1)])
def test_beside_stock(tmp_path, clip, status):
    """Stock never reads clipping_limit; all else must agree."""
    stock = os.environ.get("ESTIMATOR_EMB_STOCK_PYTHON")
    if stock is None:
        pytest.skip("ESTIMATOR_EMB_STOCK_PYTHON names no Python with TensorFlow 2.15.1")
    clips = [] if clip is None else [f"--clip={clip}"]
    done = run(tmp_path, "--a=stock", f"--a-python={stock}", *PROGRAM_AND_FLAGS, *clips)
    assert done.returncode == status, done.stderr
    if clip is not None:
        assert "dense_features/item_embedding/embedding_weights" in done.stdout.splitlines()[-1]
        assert done.stdout.splitlines()[-1].endswith("from step 1 on.")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments, status, said",
    [
        (["--b-program=other.py", "--repeat=no"], 1, [f"same {WITHIN}, from step 1 on.\n"]),
        (
            ["--chance"],
            2,
            ["Nothing can be said: run twice, side A differs from itself from step 1 on"],
        ),
        (
            ["--fail=2"],
            2,
            ["failed with status 1 after 2 steps.", "ValueError: the program's own failure"],
        ),
        (
            ["--repeat=no", "--calls=500", "--optimizer=adam"],
            0,
            [
                "Losses of steps 1 to 3",
                "evaluation 2: mae",
                "Where the program would train on after 3 steps, it was ended",
            ],
        ),
        (["--plain"], 0, ["evaluation 1: loss"]),
    ],
)
def test_programs(tmp_path, arguments, status, said):
    """Another rate; chance; a failure; trainings until the steps are made; an Estimator."""
    (tmp_path / "other.py").write_text(PROGRAM.read_text().replace("default=0.1", "default=0.11"))
    own = [one for one in arguments if one.startswith(("--b", "--repeat"))]
    done = run(tmp_path, *own, *PROGRAM_AND_FLAGS, *(one for one in arguments if one not in own))
    assert done.returncode == status, done.stderr
    assert all(one in done.stdout + done.stderr for one in said)
    assert ("A again" in done.stderr) == ("--chance" in arguments)
    assert "predict 1" not in done.stdout or "--calls=500" not in arguments


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [False, True])
def test_a_program_that_writes_its_records_and_exports(is_there, tmp_path):
    out = tmp_path / "out"
    if is_there:
        out.mkdir()
    done = run(tmp_path, *PROGRAM_AND_FLAGS, f"--out={out}")
    assert done.returncode == 0, done.stderr
    assert [*out.iterdir()] == [] if is_there else not out.exists()


@pytest.mark.slow
def test_paths_of_a_bucket(tmp_path):
    (tmp_path / "bucket").mkdir()
    done = run(tmp_path, "--map=gs://b=bucket", *PROGRAM_AND_FLAGS, "--out=gs://b/out")
    assert done.returncode == 0, done.stderr
    assert [*(tmp_path / "bucket").iterdir()] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "program, said",
    [
        ("import sys; sys.exit(0)", "ended without training a step of an Estimator."),
        ("import os; os._exit(0)", "ended by os._exit, so that nobody knows how far it was,"),
    ],
)
def test_a_program_that_does_not_train(tmp_path, program, said):
    (tmp_path / "program.py").write_text(program)
    done = run(tmp_path, "program.py")
    assert done.returncode == 2 and said in done.stderr
    (log,) = (tmp_path / "tmp").glob("*.log")
    assert str(log) in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing(tmp_path, number):
    (tmp_path / "program.py").write_text(
        textwrap.dedent(
            """
            import os, pathlib, signal, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            pathlib.Path(os.environ["TMPDIR"], "pid").write_text(str(os.getpid()))
            time.sleep(600)
            """
        )
    )
    started = run(tmp_path, "program.py", started=True)
    deadline = time.monotonic() + 60
    while not (pids := list((tmp_path / "tmp").rglob("pid"))) or not pids[0].read_text():
        assert time.monotonic() < deadline and started.poll() is None
        time.sleep(0.1)
    pid = int(pids[0].read_text())
    started.send_signal(number)
    _, stderr = started.communicate(timeout=30)
    assert started.returncode == 128 + number
    assert f"{number.name}: the sides were ended, and nothing is left of them." in stderr
    assert list((tmp_path / "tmp").iterdir()) == []
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        pytest.fail("the side still runs")
