"""Programs that cannot run: usage, a message and status 2, before any import or write."""

import os
import sys

import processes
import pytest
import text_tables

from estimator_emb.cli import main as main_lib
from estimator_emb.cli import program_files
from estimator_emb.legacy import launch

CANNOT = """
nowhere.py
    there is no file 'nowhere.py'
folder
    'folder' is a folder: name the program in it, or run a package by -m
binary.py
    'binary.py' is not a Python program: it has null bytes
latin.py
    'latin.py' is not a Python program: invalid or missing encoding declaration
encoding.py
    'encoding.py' is not a Python program: unknown encoding: nonsense
-m nowhere
    there is no module 'nowhere'
-m folder.nowhere
    there is no module 'folder.nowhere'
-m good.nowhere.more
    there is no module 'good.nowhere.more'
-m spaces.deep
    the package 'spaces.deep' cannot run: it has no module '__main__'
-m spaces.deep.nowhere
    there is no module 'spaces.deep.nowhere'
-m spaces.deep.prog.more
    there is no module 'spaces.deep.prog.more'
-m .good
    there is no module '.good'
-mspaces..prog
    there is no module 'spaces..prog'
-m package
    the package 'package' cannot run: it has no module '__main__'
-m package.old --flag
    package/old.py, line 2: Missing parentheses in call to 'print'. Did you mean print(...)?:
    print 'x'
wrong.py
    wrong.py, line 2: '(' was never closed: x = (
async.py
    async.py, line 1: invalid syntax: run(async=True)
except.py
    except.py, line 3: multiple exception types must be parenthesized: except IOError, e:
octal.py
    octal.py, line 1: leading zeros in decimal integer literals are not permitted; use an 0o
    prefix for octal integers: mode = 0755
tabs.py
    tabs.py, line 3: inconsistent use of tabs and spaces in indentation: y = 2
"""
FILES = {
    "binary.py": b"\x7fELF\0\0",
    "latin.py": b"# caf\xe9 au lait\n",
    "encoding.py": b"# -*- coding: nonsense -*-\n",
    "good.py": b"print('ran')\n",
    "package/__init__.py": b"raise AssertionError('imported')\n",
    "package/old.py": b"'''Old.'''\nprint 'x'\n",
    "spaces/deep/prog.py": b"",
    "wrong.py": b"# A bracket.\nx = (\n",
    "async.py": b"run(async=True)\n",
    "except.py": b"try:\n  x\nexcept IOError, e:\n  pass\n",
    "octal.py": b"mode = 0755\n",
    "tabs.py": b"if 1:\n        x = 1\n\ty = 2\n",
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
@pytest.mark.parametrize("arguments, message", text_tables.read(CANNOT).items())
def test_refuses_programs_that_cannot_run(arguments, message, subcommand, folder, capsys):
    before = sorted(folder.rglob("*"))
    with pytest.raises(SystemExit) as exit_:
        main_lib.main([subcommand, *arguments.split()])
    assert exit_.value.code == 2
    said = capsys.readouterr()
    usage, last = said.err.splitlines()[0], said.err.splitlines()[-1]
    assert said.out == "" and usage.startswith(f"usage: estimator-emb {subcommand} ")
    assert last == f"estimator-emb {subcommand}: error: {message}"
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


def test_skips_finders_without_find_spec(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [object(), *sys.meta_path])
    assert program_files._module_refusal("json.tool") is None
    assert program_files._module_refusal("json.nothing") is not None


def test_refuses_an_unreadable_file(folder, capsys):
    (folder / "good.py").chmod(0)
    if os.access("good.py", os.R_OK):
        pytest.skip("this user may read every file")
    with pytest.raises(SystemExit):
        main_lib.main(["run", "good.py"])
    assert capsys.readouterr().err.endswith("'good.py' cannot be read: Permission denied\n")


@pytest.mark.slow
def test_a_program_that_fails_by_itself_keeps_its_traceback(folder):
    (folder / "program.py").write_text("import package.old\n")
    (folder / "package" / "__init__.py").write_text("")
    lines = processes.run_command("run", "program.py", status=1).stderr.splitlines()
    assert "Traceback (most recent call last):" in lines
    (error,) = [line for line in lines if line.startswith(("SyntaxError", "estimator-emb"))]
    assert error.startswith("SyntaxError: Missing parentheses")
