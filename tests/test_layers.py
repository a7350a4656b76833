# SPDX-License-Identifier: Apache-2.0
"""Imports go one way: of what imports what, here and between the packages, nothing is a circle.

Imports inside functions count too: such an import only hides a circle.
"""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ("estimator_emb", "feature_columns")
FILES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for package in PACKAGES
    for file in (ROOT / package).rglob("*.py")
}


def imported(module):
    """The modules of ours that a module imports, but for the packages that they are in."""
    found = set()
    for node in ast.walk(ast.parse(FILES[module].read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
            found.add(node.module)
    above = {name for name in FILES if module.startswith(f"{name}.")}
    return found & set(FILES) - above - {module}


MODULES = {module: imported(module) for module in FILES}
BETWEEN_PACKAGES = {
    package: {
        name.split(".")[0]
        for module, names in MODULES.items()
        if module.split(".")[0] == package
        for name in names
    }
    - {package}
    for package in PACKAGES
}


def circles(graph):
    """What can be reached from itself."""

    def reached(start):
        found, waiting = set(), list(graph[start])
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += graph[name]
        return found

    return sorted(name for name in graph if name in reached(name))


@pytest.mark.parametrize("graph", [MODULES, BETWEEN_PACKAGES], ids=["modules", "packages"])
def test_no_circle(graph):
    assert circles(graph) == []


def test_all_imports_are_seen():
    assert "estimator_emb.spec.resolved" in MODULES["estimator_emb.estimator"]
    assert {"estimator_emb": set(), "feature_columns": {"estimator_emb"}} == BETWEEN_PACKAGES
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c"]
