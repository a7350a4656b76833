# SPDX-License-Identifier: Apache-2.0
"""A name says what it is: no two classes share one, and no function is called only `check`."""

import ast
import collections
import functools
import pathlib

ROOT = pathlib.Path(__file__).parents[1]
TOO_SHORT = ("advice", "check", "install", "read", "run")

OF_TWO_VOCABULARIES = {"Adagrad", "FeatureConfig", "TableConfig"}
"""Public names of Estimators, and of TensorFlow 2 or Keras."""
PUBLIC = {("legacy", "install")}
"""`estimator_emb.install`."""


@functools.cache
def trees():
    return {
        str(file.relative_to(ROOT)): ast.parse(file.read_text())
        for package in ("estimator_emb", "feature_columns")
        for file in (ROOT / package).rglob("*.py")
    }


def test_no_two_classes_share_a_name():
    files = collections.defaultdict(list)
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(file)
    shared = {name: of_name for name, of_name in files.items() if len(of_name) > 1}
    assert {n: f for n, f in shared.items() if n not in OF_TWO_VOCABULARIES} == {}


def test_no_public_function_has_a_name_that_says_too_little():
    short = {
        (file.split("/")[1], node.name)
        for file, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name in TOO_SHORT
    }
    assert short == PUBLIC
