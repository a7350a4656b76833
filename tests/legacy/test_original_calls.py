"""Functions and classes of TensorFlow 1.15's `tf.contrib` give the results of TensorFlow 1.15.5."""

import json
import re
import shutil

import contrib_calls
import numpy as np
import originals
import processes
import pytest

DATA = processes.ROOT / "tests" / "data"
PACKAGES = (
    "layers rnn seq2seq legacy_seq2seq crf metrics losses opt training framework lookup image "
    "learn estimator predictor slim model_pruning quantize graph_editor distributions sparsemax "
    "resampler factorization timeseries"
).split()
DIFFERENT = {
    "C.crossed_column(k, 7)": "RuntimeError: .* C++ op",
    "C.scattered_embedding_lookup": "RuntimeError: .* C++ op",
    "C.interpolate_spline": 1e-4,
    "C.GGTOptimizer": 1e-4,
    "C.RNNEstimator(C": "ValueError: Items of feature_columns must be a _FeatureColumn",
    "C.GMM(2": "ValueError: The truth value of an array",
    "C.ARRegressor": "ValueError: setting an array element",
    "C.StructuralEnsembleRegressor": "IndexError",
}
"""Part of a line -> the error that it raises today, or the tolerance. docs/contrib.md says why."""

PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import estimator_emb
estimator_emb.install(tf_v1=True, contrib=sys.argv[2])
import contrib_calls
with open(sys.argv[3], "w") as file:
    json.dump(contrib_calls.main(), file)
"""


def same(actual, expected, where, tolerance):
    if isinstance(expected, dict):
        assert sorted(actual) == sorted(expected), where
        for key, value in expected.items():
            same(actual[key], value, where, tolerance)
    elif isinstance(expected, list):
        assert len(actual) == len(expected), (where, actual, expected)
        for one, other in zip(actual, expected, strict=True):
            same(one, other, where, tolerance)
    elif isinstance(expected, float):
        np.testing.assert_allclose(actual, expected, 3 * tolerance, tolerance, err_msg=where)
    else:
        assert actual == expected, (where, actual, expected)


def test_every_public_name_is_called_or_documented():
    there = json.loads((DATA / "tensorflow_1_15.json").read_text())["contrib"]
    text = "\n".join(line for _, line in contrib_calls.lines())
    called = set(re.findall(r"\.(\w+)", text)) | set(re.findall(r'"(\w+)"', text))
    page = (processes.ROOT / "docs" / "contrib.md").read_text()
    called |= set(re.findall(r"\w+", page.partition("## Ops in C++")[2]))
    missing = {
        f"{package}.{name}"
        for package in PACKAGES
        for name in there[package].split()
        if name not in called
    }
    assert not missing


@pytest.mark.slow
@originals.needs_wheel
def test_calls_give_the_results_of_tensorflow_1_15(tmp_path):
    path = tmp_path / "results.json"
    folder = str(processes.ROOT / "tests" / "legacy")
    processes.run(PROGRAM, folder, originals.WHEEL, str(path))
    actual = json.loads(path.read_text())
    expected = json.loads((DATA / "contrib_calls.json").read_text())
    assert len(expected) > 300 and sorted(actual) == sorted(expected)
    for line, want in expected.items():
        got = actual[line]
        known = next((why for part, why in DIFFERENT.items() if part in line), 1e-6)
        if isinstance(known, str):
            assert re.match(known.replace("C++", r"C\+\+"), got[0]), (line, got)
        else:
            same(got, want, line, known)


@pytest.mark.slow
@originals.needs_python
def test_tensorflow_1_15_writes_the_expected_results():
    command = [originals.PYTHON, processes.ROOT / "tests" / "legacy" / "contrib_calls.py"]
    environment = processes.users_environment(PYTHONPATH=None, TF2_BEHAVIOR=None)
    done = processes.ended(command, 0, None, processes.HANGS, environment)
    expected = json.loads((DATA / "contrib_calls.json").read_text())
    actual = json.loads(done.stdout)
    for line, want in expected.items():
        assert len(want) == 2, (line, want)
        same(actual[line], want, line, 1e-6)


@pytest.mark.slow
@originals.needs_wheel
@originals.needs_python
def test_programs_train_as_in_tensorflow_1_15(tmp_path):
    """The first ten losses from a checkpoint that TensorFlow 1.15.5 has written."""
    program = processes.ROOT / "tests" / "legacy" / "contrib_programs.py"
    environment = processes.users_environment(PYTHONPATH=None, TF2_BEHAVIOR=None)
    command = [originals.PYTHON, program, tmp_path, "write"]
    written = processes.ended(command, 0, None, processes.HANGS, environment)
    for folder in tmp_path.glob("*-model"):
        shutil.rmtree(folder)
    command = ["run", "--tf-v1", *originals.OPTIONS, program, tmp_path, "read"]
    read = processes.run_command(*command)
    want, got = (
        json.loads(re.search("^losses (.*)$", done.stdout, re.M)[1]) for done in (written, read)
    )
    assert len(want) == 12 and sorted(got) == sorted(want)
    for name, ((losses, predicted), variables) in want.items():
        assert len(losses) == 10 and losses[0] > losses[-1], name
        same(got[name][0][0], losses, name, 1e-6)
        same(got[name][0][1], predicted, name, 1e-4)
        assert got[name][1] == variables, name
