"""Programs that cannot run, and modules that run as with Python."""

import sys

import processes
import pytest

from estimator_emb.cli import main as main_lib
from estimator_emb.legacy import launch

FILES = {
    "package/__init__.py": b"",
    "package/old.py": b"print 'x'\n",
    "wrong.py": b"# A bracket.\nx = (\n",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, source in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(source)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["not the program's", *sys.path[1:]])
    return tmp_path


@pytest.mark.parametrize("subcommand", ["run", "check", "cluster"])
@pytest.mark.parametrize("program", ["nowhere.py", "package"])
def test_refuses_a_missing_program(program, subcommand, folder, capsys):
    before = sorted(folder.rglob("*"))
    with pytest.raises(SystemExit) as exit_:
        main_lib.main([subcommand, program])
    assert exit_.value.code == 2
    said = capsys.readouterr()
    usage, last = said.err.splitlines()[0], said.err.splitlines()[-1]
    assert said.out == "" and usage.startswith(f"usage: estimator-emb {subcommand} ")
    assert last == f"estimator-emb {subcommand}: error: there is no file {program!r}"
    assert sorted(folder.rglob("*")) == before


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


@pytest.mark.slow
def test_a_program_that_fails_by_itself_keeps_its_traceback(folder):
    (folder / "program.py").write_text("import package.old\n")
    lines = processes.run_command("run", "program.py", status=1).stderr.splitlines()
    assert "Traceback (most recent call last):" in lines
    (error,) = [line for line in lines if line.startswith(("SyntaxError", "estimator-emb"))]
    assert error.startswith("SyntaxError: Missing parentheses")
