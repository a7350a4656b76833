"""Programs that cannot run, and modules that run as with Python."""

import sys
import types

import processes
import pytest

from estimator_emb.legacy import launch


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Returns the current folder, with programs that Python refuses."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "old.py").write_text("print 'x'\n")
    (tmp_path / "wrong.py").write_text("# A bracket.\nx = (\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["not the program's", *sys.path[1:]])
    return tmp_path


SHOW = """
import sys
{imported}
spec = sys.modules["__main__"].__spec__
print([__name__, __package__, __file__, spec and spec.name, sys.argv, sys.path[0], near.__name__])
"""
RUNS = {
    "ran.prog": ["ran/__init__.py", "ran/prog.py", "ran/near.py"],
    "ran.space.prog": ["ran/__init__.py", "ran/space/prog.py", "ran/space/near.py"],
    "space.prog": ["space/prog.py", "space/near.py"],
    "space.deep.prog": ["space/deep/prog.py", "space/deep/near.py"],
    "space.deep.deeper.prog": ["space/deep/deeper/prog.py", "space/deep/deeper/near.py"],
    "space.ran.prog": ["space/ran/__init__.py", "space/ran/prog.py", "space/ran/near.py"],
    "space.deep": ["space/deep/__main__.py", "space/deep/near.py"],
    "space": ["space/__main__.py", "space/near.py"],
    "ran": ["ran/__init__.py", "ran/__main__.py", "ran/near.py"],
    "prog": ["prog.py", "near.py"],
    "ran.time": ["ran/__init__.py", "ran/time.py", "ran/near.py"],
    "space.sys": ["space/sys.py", "space/near.py"],
}
"""Module -> existing files. The last but one prints what Python gave it."""


@pytest.mark.fast(6)
@pytest.mark.parametrize("module", RUNS)
def test_a_module_runs_as_with_python(module, tmp_path, monkeypatch, capsys):
    *_, program, near = RUNS[module]
    for name in RUNS[module]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    imported = "from . import near" if "/" in near else "import near"
    (tmp_path / program).write_text(SHOW.format(imported=imported))
    monkeypatch.chdir(tmp_path)
    command = ["-m", module, "--flag", "--", "x"]
    expected = processes.run_python(*command).stdout
    monkeypatch.setattr(sys, "path", ["not the program's", *sys.path[1:]])
    before = set(sys.modules)
    try:
        with launch.restored():
            launch.run_program(command, False)
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]
    assert expected and capsys.readouterr().out == expected


def test_shows_pythons_own_error_about_a_program_that_cannot_run(folder, capsys):
    errors = {
        ("wrong.py",): "SyntaxError: '(' was never closed",
        ("-m", "package.old"): "SyntaxError: Missing parentheses in call to 'print'",
        ("-m", "package"): "ImportError: No module named package.__main__",
        ("-m", "nowhere"): "ImportError: No module named nowhere",
    }
    for program, error in errors.items():
        with launch.restored():
            assert launch.launch(program) == 1
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith(error), last
    with launch.restored():
        assert launch.launch(["package/__init__.py"]) == 0


LIMITED = """
import random, sys
import numpy, tensorflow
from estimator_emb.legacy import launch
one = launch.Estimator()
for steps in (None, None), (2, None), (9, None), (None, 9), (None, 2), (9, 9):
    one.train(None, None, *steps)
one.evaluate(None, 9, "x")
for one.backend.request.use_tpu in True, False:
    one.train(None)
print(sys.argv[1], one.tf_random_seed, vars(one).update(own=3), one.tf_random_seed)
of_keras = tensorflow.keras.layers.Dense(1)(numpy.ones([1, 3])) + tensorflow.random.uniform([])
print(float(of_keras[0, 0]), random.random(), numpy.random.rand())
raise KeyboardInterrupt
"""


def test_limits_and_seeds_reach_a_program(tmp_path, monkeypatch, capsys):
    stub = {
        "model_dir": "/nowhere",
        "backend": types.SimpleNamespace(request=types.SimpleNamespace(use_tpu=False)),
        "tf_random_seed": property(lambda self: vars(self).get("own")),
        "train": lambda self, input_fn, hooks, steps, last, listeners: print(steps, last),
        "evaluate": lambda self, input_fn, steps, name: print(steps, name),
    }
    (tmp_path / "program.py").write_text(LIMITED)
    # The two arguments of each call in LIMITED: at most 3 steps, but calls that fail stay as given.
    limited = "3 None 2 None 3 None None 3 None 2 9 9 3 x None None 3 None".split()
    drawn = []
    for seed in (7, 7, 8):
        monkeypatch.setattr(launch, "Estimator", type("Estimator", (), stub))
        monkeypatch.setattr(launch, "LocalRunConfig", launch.Estimator)
        with launch.restored():
            program = [f"{tmp_path}/program.py", "own"]
            assert launch.launch(program, steps_limit=3, seed=seed) == 130
        assert launch.install._installed is None
        said, error = capsys.readouterr()
        *others, of_tensorflow, of_python, of_numpy = said.split()
        assert others == [*limited, "own", str(seed), "None", "3"]
        drawn.append({of_tensorflow, of_python, of_numpy})
        assert error.endswith("/program.py was interrupted.\n")
    assert drawn[0] == drawn[1] and not drawn[0] & drawn[2]  # Equal seeds draw equal numbers.


@pytest.mark.slow
def test_a_program_that_fails_by_itself_keeps_its_traceback(folder):
    (folder / "program.py").write_text("import package.old\n")
    lines = processes.run_command("run", "program.py", status=1).stderr.splitlines()
    assert "Traceback (most recent call last):" in lines
    (error,) = [line for line in lines if line.startswith(("SyntaxError", "estimator-emb"))]
    assert error.startswith("SyntaxError: Missing parentheses")
