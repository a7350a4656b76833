"""The private parts of jax that run a step: these tests name the part that a newer jax changed."""

import ast
import importlib
import pathlib

import pytest

from estimator_emb.backends import xla

PARTS = {
    "jax._src.distributed.global_state": "where hosts say that they have lost another one",
    "jax._src.config.use_shardy_partitioner": "divides a step by GSPMD where Shardy cannot",
}
"""Name -> what the package uses it for."""


@pytest.mark.parametrize("name", PARTS)
def test_private_part_of_jax_exists(name):
    jax = pytest.importorskip("jax")
    package, module, *attributes = name.split(".")
    found = importlib.import_module(f"{package}.{module}")
    for attribute in attributes:
        if not hasattr(found, attribute) and package == "jax":
            importlib.import_module(f"{found.__name__}.{attribute}")
        assert hasattr(found, attribute), (
            f"jax {jax.__version__} has no {name}, which backends/xla needs: {PARTS[name]}"
        )
        found = getattr(found, attribute)


def test_lists_every_private_part_of_jax():
    """Only devices.py uses private modules of jax, and exactly the listed parts."""
    for path in pathlib.Path(xla.__file__).parents[2].rglob("*.py"):
        tree = ast.parse(path.read_text())
        private = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jax")
            for alias in node.names
            if "._" in f"{node.module}.{alias.name}"
        }
        used = {
            f"{private[node.value.id]}.{node.attr}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in private
        }
        assert used == ({*PARTS} if path.parts[-2:] == ("xla", "devices.py") else set()), path
