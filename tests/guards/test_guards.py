"""A list names all guards, nothing else calls them, and each backend runs those that apply."""

import ast
import inspect
import pathlib
import re
import sys

import harness
import numpy as np
import pytest
import tensorflow as tf
import tpu_described
from tensorflow.python.training import training

import estimator_emb as ee
from estimator_emb.backends.choose import BACKENDS
from estimator_emb.guards import watching
from estimator_emb.guards.every import GUARDS
from estimator_emb.guards.guard import Call, Guard, Runs

PACKAGE = pathlib.Path(ee.__file__).parent
PAGE = PACKAGE.parent / "docs" / "differences.md"
LISTED = ("every", "guard", "watching", "calls", "stopping", "__init__")
SPEC = harness.table_spec(7, 2, ee.AdagradParameters(0.1))


def classes_of(file):
    return [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)]


def test_each_file_has_one_listed_guard():
    files = [file for file in (PACKAGE / "guards").glob("*.py") if file.stem not in LISTED]
    found = {
        file.stem: [one.name for one in classes_of(file) if "Guard" in map(ast.unparse, one.bases)]
        for file in files
    }
    assert {len(names) for names in found.values()} == {1}, found
    listed = {guard.__module__.rpartition(".")[2]: [guard.__name__] for guard in GUARDS}
    assert found == listed
    assert len(set(GUARDS)) == len(GUARDS)


def test_no_other_module_calls_a_guard():
    names = {guard.__name__ for guard in GUARDS}
    naming = {
        str(file.relative_to(PACKAGE)): sorted(named)
        for file in PACKAGE.rglob("*.py")
        if file.parent.name != "guards" or file.stem in ("watching", "calls")
        for named in [
            names
            & {
                getattr(node, "id", getattr(node, "attr", getattr(node, "name", None)))
                for node in ast.walk(ast.parse(file.read_text()))
                if isinstance(node, (ast.Name, ast.Attribute, ast.alias))
            }
        ]
        if named
    }
    assert naming == {}


def test_no_other_module_has_a_hook_that_watches_a_call():
    """Backends run steps with the `running` hooks. CheckpointInputPipelineHook is for programs."""
    found = {
        node.name
        for file in PACKAGE.rglob("*.py")
        if file.relative_to(PACKAGE).parts[0] in ("backends", "estimator.py", "legacy", "preflight")
        for node in classes_of(file)
        if any(ast.unparse(base).endswith("Hook") for base in node.bases)
    }
    running = {"LoopHook", "Member", "_AtBegin", "HostCopy", "_FlushHook", "_LoadHook"}
    assert found == {*running, "CheckpointInputPipelineHook"}


def test_a_guard_overrides_only_methods_of_the_base_class():
    def public(cls):
        return {name for name in vars(cls) if not name.startswith("_")}

    assert {
        guard.__name__: public(guard) - public(Guard)
        for guard in GUARDS
        if public(guard) - public(Guard)
    } == {}
    assert all(public(guard) - {"applies"} for guard in GUARDS)


def input_fn(params=None):
    size = params["batch_size"] if params else 8
    labels = {"x": np.ones([size, 2], np.float32)}
    return harness.dataset([({"x": harness.sparse([[1]] * size)}, labels)]).repeat()


MODEL_FN = harness.gradient_model_fn(["x"])


def on_host(path, model_fn, **kwargs):
    return harness.estimator(model_fn, SPEC, path, 8, **kwargs)


MADE = {
    Runs.LOCAL: on_host,
    Runs.EMULATED: lambda path, fn: on_host(path, fn, device="host", num_shards=2),
    Runs.PJRT: lambda path, fn: on_host(path, fn, device="pjrt"),
    Runs.TPU: lambda path, fn: tpu_described.estimator(fn, SPEC, path, batch=8),
}


def test_every_backend_is_tested_here():
    assert len(BACKENDS) + 1 == len(MADE)


@pytest.mark.parametrize("runs", MADE, ids=lambda runs: runs.name)
def test_every_backend_calls_a_listed_guard(runs, monkeypatch, tmp_path):
    if runs is Runs.PJRT:
        pytest.importorskip("jax")
    called = []

    class Noted(Guard):
        def __init__(self, graph):
            super().__init__(graph)
            assert self.call.runs is runs

        def hooks(self, spec):
            called.append("hooks")
            return [tf.compat.v1.train.SessionRunHook()]

    for name in ("calling", "before", "around", "after", "built", "complete", "training"):

        def noting(self, *given, name=name):
            called.append(name)
            return getattr(Guard, name)(self, *given)

        setattr(Noted, name, noting)
    monkeypatch.setattr(watching, "GUARDS", (*GUARDS, Noted))
    found = {}
    estimator = MADE[runs](tmp_path, MODEL_FN)
    estimator.described = tpu_described.metadata(1)
    with tpu_described._stopped_at(training, "MonitoredTrainingSession", estimator, found):
        estimator.train(input_fn, max_steps=20)
    inner = ["before", "around", "after", "built"]
    assert called == ["calling", *inner, "complete", "hooks", "training"]
    added = [type(hook) for hook in found["hooks"]]
    assert added.count(tf.compat.v1.train.SessionRunHook) == 1


@pytest.mark.parametrize("runs", [Runs.LOCAL, Runs.EMULATED], ids=lambda runs: runs.name)
def test_a_batch_meets_few_modules_on_its_way_to_model_fn(runs, tmp_path):
    """Counts the package's modules in the frames around model_fn, from `_call_model_fn` on."""
    met = []

    def model_fn(features, labels, mode, params):
        frame = sys._getframe()
        while frame is not None and met[-1:] != ["_call_model_fn of the estimator"]:
            name, file = frame.f_code.co_name, pathlib.Path(frame.f_code.co_filename)
            if PACKAGE in file.parents:
                met.append(str(file.relative_to(PACKAGE)))
                if (name, met[-1]) == ("_call_model_fn", "estimator.py"):
                    met[-1] = "_call_model_fn of the estimator"
            frame = frame.f_back
        return MODEL_FN(features, labels, mode, params)

    MADE[runs](tmp_path, model_fn).train(input_fn, max_steps=1)
    visits = [one for one, before in zip(met, [None, *met], strict=False) if one != before]
    assert met[-1] == "_call_model_fn of the estimator"
    assert len(set(visits)) <= 8
    assert max(map(visits.count, visits)) <= 2  # No module is entered a third time.


def ways():
    """Returns {column of the page: function from a method and a mode to a Call}."""
    table = object()

    def call(runs, has_spec):
        return lambda method, mode: Call(
            runs,
            method,
            mode,
            model_fn=MODEL_FN,
            has_spec=has_spec,
            tables=[table] if has_spec else [],
            batch_sizes={mode: 8},
            max_steps=9,
            config=_Config(),
            directory=table,
        )

    return {
        "an `Estimator`": call(Runs.PLAIN, False),
        "`use_tpu=False`": call(Runs.LOCAL, True),
        "an emulated TPU": call(Runs.EMULATED, True),
        "PJRT devices": call(Runs.PJRT, True),
        "a TPU": call(Runs.TPU, True),
    }


class _Config:
    num_ps_replicas = 2
    is_chief = True


METHODS = {"train": "train", "evaluate": "eval", "predict": "infer", "export": "infer"}


def test_the_page_lists_guards_by_backend():
    lines = ["| guard | " + " | ".join(ways()) + " |", "|---" * (len(ways()) + 1) + "|"]
    for guard in GUARDS:
        cells = []
        for make in ways().values():
            given = [name for name, mode in METHODS.items() if guard.applies(make(name, mode))]
            cells.append("all calls" if len(given) == len(METHODS) else ", ".join(given))
        says = inspect.getdoc(sys.modules[guard.__module__]).partition("\n\n")[0]
        says = re.sub(r"\s+", " ", says).rstrip(".")
        lines.append(f"| {says} | " + " | ".join(cells) + " |")
    assert "\n".join(lines) in PAGE.read_text(), "\n".join(lines)
