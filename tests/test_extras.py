"""Each extra of pyproject.toml can be deleted. The rest of the package works without it."""

import ast
import importlib.util
import os
import shutil
import sys

import processes
import pytest

from estimator_emb.catalog import extras

try:
    import tomllib
except ImportError:  # Python 3.10 has no tomllib.
    import pip._vendor.tomli as tomllib  # type: ignore[no-redef]

ROOT = processes.ROOT
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["estimator_emb"]["extras"]

ASKED = {
    "native": "main(['run', 'smoke.py', 'second'])",
    "devices": "estimator_emb.TPUEstimator(model_fn, config=config, train_batch_size=8)",
    "hosts": "os.environ['ESTIMATOR_EMB_HOSTS'] = 'auto'\n"
    "estimator_emb.TPUEstimator(model_fn, config=config, train_batch_size=8)",
    "check": "main(['check', 'smoke.py'])",
    "compare": "main(['compare', 'a', 'b'])",
    "migrate": "main(['migrate', 'smoke.py'])",
    "tf1": "main(['run', '--tf-v1', 'smoke.py', 'model'])",
    "formats": "main(['export', 'model', 'out', '--to=npz'])",
    "launcher": "main(['cluster', 'smoke.py'])",
}
"""Extra -> a program that asks for it."""


def extra_of(path):
    """Returns the name of the extra that contains a file or a module of the package, or None."""
    path = path.replace(".", "/") if not path.endswith(".py") else path.removesuffix(".py")
    for name, extra in EXTRAS.items():
        for one in extra["paths"]:
            one = one.removesuffix(".py")
            if path == one or path.startswith(f"{one}/"):
                return name
    return None


def imported(statements):
    """Yields the modules and names that statements import when they run."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not isinstance(node, ast.If) or ast.unparse(node.test) != "TYPE_CHECKING":
            for inside in ("body", "orelse", "handlers", "finalbody", "cases"):
                yield from imported(getattr(node, inside, ()))


def test_the_table_of_extras_names_existing_files_once():
    assert EXTRAS.keys() == ASKED.keys()
    paths = [path for extra in EXTRAS.values() for path in extra["paths"]]
    assert len(set(paths)) == len(paths)
    for extra in EXTRAS.values():
        assert extra.keys() <= {"paths", "tests", "page", "uses"}
        for path in [*extra["paths"], *extra["tests"], extra["page"]]:
            assert (ROOT / path).exists(), path


def test_the_core_imports_no_extra():
    found = []
    for package in ("estimator_emb", "feature_columns"):
        for file in sorted((ROOT / package).rglob("*.py")):
            own = extra_of(str(file.relative_to(ROOT)))
            may = {None, own, *EXTRAS.get(own, {}).get("uses", ())}
            for name in imported(ast.parse(file.read_text()).body):
                if name.startswith("estimator_emb.") and extra_of(name) not in may:
                    found.append(f"{file.relative_to(ROOT)} imports {name}")
    assert not found


def test_a_missing_extra_is_told_from_a_missing_package(monkeypatch):
    said = "the extra 'x': estimator_emb.no_such is missing"
    with pytest.raises(extras.MissingExtra, match=said):
        extras.load("x", "no_such")
    monkeypatch.setitem(sys.modules, "difflib", None)  # cli.migrate imports it.
    monkeypatch.delitem(sys.modules, "estimator_emb.cli.migrate", raising=False)
    with pytest.raises(ModuleNotFoundError, match="difflib"):  # A MissingExtra is no such error.
        extras.load("migrate", "cli.migrate")


@pytest.mark.slow
@pytest.mark.any_version
@pytest.mark.parametrize("extra", sorted(ASKED))
def test_the_package_works_without_an_extra_and_names_it_on_use(extra, tmp_path):
    for name in ("estimator_emb", "feature_columns"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "tests" / "data" / "smoke.py", tmp_path)
    (tmp_path / "sitecustomize.py").write_text(HIDES_THE_CHECKOUT)
    for path in EXTRAS[extra]["paths"]:
        place = tmp_path / path
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    own = {"PYTHONPATH": str(tmp_path), "TF_CPP_MIN_LOG_LEVEL": "2", "ESTIMATOR_EMB_NATIVE": "1"}

    def run(*words, status=None):
        command, environment = [sys.executable, *words], {**os.environ, **own}
        done = processes.ended(command, status, tmp_path, processes.HANGS, environment)
        return done.stdout + done.stderr

    lint = "from importlinter import cli; cli.lint_imports_command()"
    for words in (
        ("-c", lint, "--no-cache"),
        ("-m", "estimator_emb", "--help"),
        ("-m", "estimator_emb", "run", "smoke.py", "model"),
        ("-c", CANNED),
    ):
        run(*words, status=0)
    if extra == "hosts" and importlib.util.find_spec("jax") is None:
        return  # A program that asks for hosts is first told to install jax.
    said = run("-c", f"{ASKS}{ASKED[extra]}\n")
    assert f"This copy of estimator_emb does not contain the extra '{extra}'" in said


HIDES_THE_CHECKOUT = """
import sys

sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
"""
CANNED = """
import estimator_emb
estimator_emb.install()
import tensorflow as tf

data = {"x": [[1.0], [2.0]]}, [[1.0], [2.0]]
column = tf.feature_column.numeric_column("x")
canned = tf.estimator.DNNRegressor([2], [column])
canned.train(lambda: tf.data.Dataset.from_tensors(data), steps=1)
"""
ASKS = """
import os

import estimator_emb
from estimator_emb.cli.main import main


def model_fn(features, labels, mode, params):
    raise NotImplementedError


config = estimator_emb.RunConfig(tpu_config=estimator_emb.TPUConfig(device="pjrt"))
"""
