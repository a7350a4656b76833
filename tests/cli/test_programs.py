"""Programs that cannot run, and modules that run as with Python."""

import os
import sys
import types
from unittest import mock

import harness
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
    changes = "import os, sys, tensorflow\nos.environ['OWN'] = os.environ.pop('PATH')\n"
    fails = "assert vars(sys.modules['__main__']) is globals()\ntensorflow.Session()\n"
    (tmp_path / "tf1.py").write_text(changes + fails)
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
"""Module -> existing files. The last but one is the program, and prints what it got.

`ran` is a package, and `space` a namespace package. Two modules have names of Python's own.
"""


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
    with mock.patch.dict(sys.modules), launch.restored():
        launch.run_program(command, binds_tf_v1=False)
        assert launch.install._installed is not None  # The program found `tf.estimator`.
    assert expected and capsys.readouterr().out == expected


def test_shows_pythons_own_error_about_a_program_that_cannot_run(folder, capsys):
    errors = {
        ("tf1.py",): "estimator-emb: ",  # Advice about the name that is gone.
        ("wrong.py",): "SyntaxError: '(' was never closed",
        ("-m", "package.old"): "SyntaxError: Missing parentheses in call to 'print'",
        ("-m", "package"): "ImportError: No module named package.__main__",
        ("-m", "nowhere"): "ImportError: No module named nowhere",
    }
    before = dict(os.environ)
    for program, error in errors.items():
        with launch.restored():
            assert launch.launch(program) == 1
        assert dict(os.environ) == before
        *lines, last = capsys.readouterr().err.splitlines()
        assert last.startswith(error), last
        assert not [line for line in lines if launch.__file__ in line]
    with launch.restored():  # A script, however it is called, runs.
        assert launch.launch(["package/__init__.py"]) == 0


@pytest.fixture
def launched(tmp_path, capsys):
    """Returns a function that launches a program, giving its status, output and errors."""

    def of(text, *arguments, **options):
        (tmp_path / "program.py").write_text(text)
        with launch.restored():
            status = launch.launch([f"{tmp_path}/program.py", *arguments], **options)
        assert launch.install._installed is None
        return status, *capsys.readouterr()

    return of


class PrintedCalls:
    """Replaces the Estimator that `launch` limits. It prints the steps that reach it."""

    model_dir = "/nowhere"  # There is no checkpoint, so a training begins at step 0.
    backend = types.SimpleNamespace(request=types.SimpleNamespace(use_tpu=False))

    def train(self, input_fn, hooks, steps, max_steps, saving_listeners):
        print(steps, max_steps)

    def evaluate(self, input_fn, steps, name):
        print(steps, name)


WITH_LIMIT_3 = {
    "train(None)": "3 None",
    "train(None, steps=2)": "2 None",
    "train(None, steps=3)": "3 None",
    "train(None, steps=9)": "3 None",
    "train(None, max_steps=9)": "None 3",
    "train(None, max_steps=2)": "None 2",
    "train(None, None, 9, 9)": "9 9",  # Fails, as without a limit.
    "evaluate(None, 9, 'x')": "3 x",
    "backend.request.use_tpu = True": None,
    "train(None) ": "None None",  # Fails: a TPU requires a number of steps.
}
"""Line of a program, after 'estimator.' -> the steps that the Estimator gets."""


def test_a_steps_limit_reaches_each_call_of_a_program(launched, monkeypatch, caplog):
    caplog.set_level("INFO", "estimator_emb")
    monkeypatch.setattr(launch, "Estimator", PrintedCalls)
    start = "from estimator_emb.legacy import launch\nestimator = launch.Estimator()\n"
    program = start + "".join(f"estimator.{line}\n" for line in WITH_LIMIT_3)
    status, output, _ = launched(program, steps_limit=3)
    assert status == 0 and output.splitlines() == [*filter(None, WITH_LIMIT_3.values())]
    assert len(harness.said(caplog)) == 4  # A line for each call that it limits.


SEEDED = """
import random
import numpy, tensorflow
from estimator_emb.legacy import launch
for own in ({}, {"tf_random_seed": 3}):
    print(launch.LocalRunConfig(**own).tf_random_seed)
of_keras = tensorflow.keras.layers.Dense(1)(numpy.ones([1, 3])) + tensorflow.random.uniform([])
print(float(of_keras[0, 0]), random.random(), numpy.random.rand())
"""


def test_a_seed_reaches_random_numbers_and_configs_without_a_seed(launched, monkeypatch):
    drawn, real = [], launch.LocalRunConfig
    for seed in (7, 7, 8):
        copy = type("RunConfig", (real,), {"tf_random_seed": real.tf_random_seed})
        monkeypatch.setattr(launch, "LocalRunConfig", copy)  # The seed changes it until the end.
        status, output, _ = launched(SEEDED, seed=seed)
        without, with_seed, *numbers = output.split()
        assert (status, without, with_seed, len(numbers)) == (0, str(seed), "3", 3)
        drawn.append({*numbers})
    assert drawn[0] == drawn[1] and not drawn[0] & drawn[2]  # Equal seeds draw equal numbers.


def test_a_program_is_named_by_its_file_or_its_module():
    assert launch.name_of(["program.py", "-m", "other"]) == "program.py"
    assert launch.name_of(["-m", "package.program", "own"]) == "package.program"


def test_an_interrupted_program_ends_with_status_130(launched):
    program = "import sys\nprint(sys.argv[1])\nraise KeyboardInterrupt"
    status, output, errors = launched(program, "own")
    assert (status, output) == (130, "own\n") and errors.endswith("/program.py was interrupted.\n")


@pytest.mark.slow
def test_a_program_that_fails_by_itself_keeps_its_traceback(folder):
    (folder / "program.py").write_text("import package.old\n")
    lines = processes.run_command("run", "program.py", status=1).stderr.splitlines()
    assert "Traceback (most recent call last):" in lines
    (error,) = [line for line in lines if line.startswith(("SyntaxError", "estimator-emb"))]
    assert error.startswith("SyntaxError: Missing parentheses")
