"""Imports go one way: down the layers of the package, and nowhere in a circle; names say what is.

Imports inside functions count, and so do imports by name.
"""

import ast
import collections
import functools
import pathlib

import pytest

LAYERS = """
    __main__
    cli feature_columns
    __init__
    checkpoint errors export experimental
    legacy preflight comparison
    estimator flags
    backends
    guards
    native xla
    step training embedding
    checkpoints
    checks
    tables keras
    spec ordering compat
    optimizers
    names private messages
    version
"""
"""A line a layer, from the roof down, of the files and folders of `estimator_emb`, and the other
package. Each may import what stands on lines below its own; its neighbours, not at all."""

EXCEPTIONS = {
    ("names.contrib", "legacy.contrib.__init__"): "the text of an import, which others do",
}
"""(importing module, imported module) -> why it may be against the layers."""

ROOT = pathlib.Path(__file__).parents[1]
FILES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts): file
    for package in ("estimator_emb", "feature_columns")
    for file in (ROOT / package).rglob("*.py")
}
"""Module -> its file; that of a package is called `__init__`."""


def module_of(name):
    """The module that an import of a dotted name runs last; None if it is not ours."""
    return next((found for found in (name, f"{name}.__init__") if found in FILES), None)


@functools.cache
def trees():
    return {module: ast.parse(file.read_text()) for module, file in FILES.items()}


def imported(tree, module):
    """The modules of ours that a module's source imports, in a statement or by name."""
    strings = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    names = {text for text in strings if "." in text}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} has a relative import"
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            of_package = {name for name in members if module_of(name) is None}
            names |= members - of_package | ({node.module} if of_package else set())
        elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            # import_module(f"estimator_emb.{name}"), whose names stand elsewhere in the file.
            names |= {node.values[0].value + text for text in strings}
    return {found for found in map(module_of, names) if found not in (None, module)}


@functools.cache
def imports():
    return {module: imported(tree, module) for module, tree in trees().items()}


def room(module):
    """The word of `LAYERS` for a module."""
    package, *rest = module.split(".")
    return rest[0] if package == "estimator_emb" else package


def short(module):
    return module.removeprefix("estimator_emb.")


def against_layers(layers, imports):
    """The imports of a room's module by one that may not: it stands on the same line or below."""
    height = {
        name: height
        for height, line in enumerate(reversed(layers.strip().splitlines()))
        for name in line.split()
    }
    return {
        (short(module), short(other))
        for module, others in imports.items()
        for other in others
        if room(module) != room(other) and height[room(module)] <= height[room(other)]
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


def test_every_room_is_in_a_layer():
    assert sorted(LAYERS.split()) == sorted({room(module) for module in FILES})


def test_imports_go_down():
    assert against_layers(LAYERS, imports()) == set(EXCEPTIONS)


def folder(module):
    return module.rpartition(".")[0]


def around(module, other):
    """Whether a module is in the package whose `__init__` the other is."""
    return other.endswith(".__init__") and module.startswith(f"{folder(other)}.")


def below(module, other):
    """Whether a module is in a folder that is in the other's, which may know it and be known."""
    return module.startswith(f"{folder(other)}.")


@pytest.mark.parametrize(
    ("unit", "allowed"), [(str, around), (folder, below)], ids=["files", "folders"]
)
def test_no_circle(unit, allowed):
    graph = {unit(module): set() for module in FILES}
    for module, others in imports().items():
        for other in others:
            if not allowed(module, other) and (short(module), short(other)) not in EXCEPTIONS:
                graph[unit(module)].add(unit(other))
    assert circles(graph) == []


@pytest.mark.parametrize(
    "source",
    [
        "import estimator_emb.spec.config",
        "import estimator_emb.spec.config as config",
        "from estimator_emb.spec import config",
        "def f():\n  from estimator_emb.spec.config import TableConfig",
        "importlib.import_module('estimator_emb.spec.config')",
        "NAME = 'spec.config'\nimportlib.import_module(f'estimator_emb.{NAME}')",
    ],
)
def test_every_import_is_seen(source):
    found = imported(ast.parse(source), "estimator_emb.messages.frames")
    assert found == {"estimator_emb.spec.config"}
    assert against_layers("spec\nmessages", {"estimator_emb.messages.frames": found})
    assert against_layers("spec messages", {"estimator_emb.messages.frames": found})
    assert not against_layers("messages\nspec", {"estimator_emb.messages.frames": found})


def test_circles_are_seen():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c"]


OF_TWO_VOCABULARIES = {"Adagrad", "FeatureConfig", "TableConfig"}
"""Public names of Estimators, and of TensorFlow 2 or Keras."""
TOO_SHORT = ("advice", "check", "install", "read", "run")
PUBLIC = {("legacy", "install")}
"""`estimator_emb.install`."""


def test_no_two_classes_share_a_name():
    modules = collections.defaultdict(list)
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(module)
    shared = {name: of_name for name, of_name in modules.items() if len(of_name) > 1}
    assert {name: of for name, of in shared.items() if name not in OF_TWO_VOCABULARIES} == {}


def test_no_public_function_has_a_name_that_says_too_little():
    short = {
        (room(module), node.name)
        for module, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name in TOO_SHORT
    }
    assert short == PUBLIC
