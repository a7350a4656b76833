"""Functions and classes of TensorFlow 1.15's `tf.contrib` give the results of TensorFlow 1.15.5."""

import itertools
import json
import re

import contrib_calls
import originals
import processes
import pytest

COLUMNS = "ValueError: Items of feature_columns must be a _FeatureColumn"
DIFFERENT = {
    "C.crossed_column(k, 7)": "RuntimeError: .* C++ op",
    "C.scattered_embedding_lookup": "RuntimeError: .* C++ op",
    "C.interpolate_spline": 1e-4,
    "C.GGTOptimizer": 1e-4,  # By the kind of CPU too.
    "C.RNNEstimator(C": COLUMNS,
    "C.RNNClassifier(": COLUMNS,
    "C.GMM(2": "ValueError: The truth value of an array",
    "C.ARRegressor": "ValueError: setting an array element",
}
"""Part of a line -> the error that it raises today, or the tolerance. docs/contrib.md says why."""

PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import estimator_emb
estimator_emb.install(tf_v1=True, contrib=sys.argv[2])
import contrib_calls
with open(sys.argv[3], "w") as file:
    json.dump(contrib_calls.main(sys.argv[4:]), file)
"""

EXPECTED = processes.data("contrib_calls.json")
MODULES = sorted({module for module, _ in contrib_calls.lines()})
shares = pytest.mark.parametrize("modules", [MODULES[n::4] for n in range(4)], ids=range(4))
"""Packages of about the same time. All of them take two minutes of CPU."""


def names_in_lines():
    """Returns the names of tf.contrib that lines call, and those that they mention.

    A line calls C.name(...), or passes C.name to `derived` or `built`, which call it.
    """
    called, mentioned = set(), set()
    for module, line in contrib_calls.lines():
        found = re.findall(r"\b(derived\(|built\()?C((?:\.[a-zA-Z]\w*)+)(\(?)", line)
        for passed, path, call in found:
            *owners, name = itertools.accumulate(f"{module}{path}".split("."), "{}.{}".format)
            called.update(owners)
            (called if passed or call else mentioned).add(name)
    return called, mentioned | called


def test_every_public_name_is_called_or_documented():
    """docs/contrib.md lists the names that no line of contrib_calls.txt calls or mentions."""
    names = processes.data("tensorflow_1_15.json")
    called, mentioned = names_in_lines()
    page = (processes.ROOT / "docs" / "contrib.md").read_text().partition("## Not tested")[2]
    documented = {
        f"{package}.{name}"
        for package, listed in re.findall(r"^\* `([\w.]+)`: ((?:[^*#])*)", page, re.M)
        for name in re.findall(r"`(\w+)`", listed)
    }
    callables = {f"{path}.{one}" for path, row in names["callables"].items() for one in row.split()}
    others = {
        f"{package}.{name}"
        for package, row in names["contrib"].items()
        if package in names["callables"]
        for name in row.split()
    }
    assert len(callables) > 800  # Many: the data file was read.
    assert not callables - called - documented
    assert not others - mentioned - documented
    assert not documented & called


def expected_of(modules):
    return {line: want for line, want in EXPECTED.items() if line.partition(":")[0] in modules}


@pytest.mark.slow
@originals.needs_wheel
@shares
def test_calls_give_the_results_of_tensorflow_1_15(modules, tmp_path):
    path = tmp_path / "results.json"
    folder = str(processes.ROOT / "tests" / "legacy")
    processes.run(PROGRAM, folder, originals.WHEEL, str(path), *modules)
    actual = json.loads(path.read_text())
    expected = expected_of(modules)
    assert len(expected) > 50 and sorted(actual) == sorted(expected)
    for line, want in expected.items():
        got = actual[line]
        known = next((why for part, why in DIFFERENT.items() if part in line), 1e-6)
        if isinstance(known, str):
            assert re.match(known.replace("C++", r"C\+\+"), got[0]), (line, got)
        else:
            contrib_calls.same(got, want, line, known)


@pytest.mark.slow
@originals.needs_python
@shares
def test_tensorflow_1_15_writes_the_expected_results(modules):
    actual = json.loads(originals.run("contrib_calls.py", *modules).stdout)
    for line, want in expected_of(modules).items():
        assert len(want) == 2, (line, want)  # An error would be one text.
        contrib_calls.same(actual[line], want, line, 1e-4 if "GGTOptimizer" in line else 1e-6)


@pytest.mark.slow
@originals.needs_wheel
@originals.needs_python
def test_a_program_trains_as_in_tensorflow_1_15(tmp_path):
    """The first ten losses from a checkpoint that TensorFlow 1.15.5 has written."""
    written = originals.run("contrib_tagger.py", tmp_path, "write")
    program = processes.ROOT / "tests" / "legacy" / "contrib_tagger.py"
    command = ["run", "--tf-v1", *originals.OPTIONS, program, tmp_path, "read"]
    read = processes.run_command(*command, status=0)
    (losses, predicted), (ours, ours_predicted) = (
        json.loads(re.search("^trained (.*)$", done.stdout, re.M)[1]) for done in (written, read)
    )
    assert len(losses) == 10 and losses[0] > losses[-1]
    contrib_calls.same(ours, losses, "losses", 1e-6)
    contrib_calls.same(ours_predicted, predicted, "predicted", 1e-4)
