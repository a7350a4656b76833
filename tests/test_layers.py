"""Imports obey the import-linter contracts in pyproject.toml, and names are clear and unique."""

import collections
import pathlib
import re

import processes
import pytest

ROOT = processes.ROOT
FILES = [
    str(file.relative_to(ROOT))
    for package in ("estimator_emb", "feature_columns")
    for file in (ROOT / package).rglob("*.py")
]
OF_TWO_VOCABULARIES = {"Adagrad", "FeatureConfig", "RunConfig", "TableConfig"}
"""Public names of Estimators that TensorFlow 2, Keras or tf.contrib also have."""


@pytest.mark.slow
def test_imports_keep_the_contracts_of_pyproject_toml():
    lint = "from importlinter import cli; cli.lint_imports_command()"
    processes.run(lint, "--no-cache", "--config=pyproject.toml", cwd=ROOT, status=0)


def test_class_names_are_unique_and_function_names_are_clear():
    """Lets a reader of a call know from the name which class it is, and what a function does.

    So no function begins with `of`, and none at the top level is one of some bare verbs.
    """
    files, vague = collections.defaultdict(list), []
    for file in FILES:
        found = re.findall(r"^( *)(class|def) (\w+)", (ROOT / file).read_text(), re.M)
        for indent, kind, name in found:
            if kind == "class":
                files[name].append(file)
            elif (not indent and name in ("advice", "check", "install", "read", "run")) or (
                name.lstrip("_").partition("_")[0] == "of"
            ):
                vague.append((file, name))
    shared = {name: of_name for name, of_name in files.items() if len(of_name) > 1}
    assert shared.keys() <= OF_TWO_VOCABULARIES, shared
    assert vague == [("estimator_emb/legacy/install.py", "install")]  # estimator_emb.install


def test_no_two_modules_share_a_name():
    """Lets a file's name tell which module is meant. Commands, formats and the like are exempt."""
    files = collections.defaultdict(list)
    for file in FILES:
        if not re.search(r"/(legacy/contrib|cli|formats)/\w+\.py$|/__init__\.py$", file):
            files[pathlib.Path(file).name].append(file)
    shared = {name: of_name for name, of_name in files.items() if len(of_name) > 1}
    assert shared.keys() == {"backend.py"}, shared  # Each folder of a backend has one.


def test_the_package_has_few_folders():
    """Keeps the package's map small for newcomers. 14 is today's number: merge to add a folder."""
    assert len({file.split("/")[1] for file in FILES if file.count("/") > 1}) <= 14
