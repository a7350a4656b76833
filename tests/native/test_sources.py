"""The C++ sources give no warning with the commands of compile_commands.json."""

import pathlib
import shutil
import subprocess

import processes
import pytest

from estimator_emb.native import build, rules

SCRIPT = processes.ROOT / ".ci" / "compile_commands.py"
SOURCES = sorted(file.name for file in build.HERE.glob("*.cc"))


def commands_by_source():
    made = processes.module_of(SCRIPT).commands()
    return {pathlib.Path(one["file"]).name: one for one in made}


def warnings(command):
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not on PATH")
    return subprocess.run([*command, "-fsyntax-only"], capture_output=True, text=True).stderr


def test_every_source_has_a_command():
    found = commands_by_source()
    assert sorted(found) == SOURCES
    for name, one in found.items():
        assert one["arguments"][-1] == one["file"] == str(build.HERE / name)
        assert {"-Wall", "-Wextra"} <= {*one["arguments"]} and "-w" not in one["arguments"]


def test_an_unused_parameter_is_a_warning(tmp_path):
    (tmp_path / "a.cc").write_text("int one(int unused) { return 1; }\n")
    command = ["c++", *build.compile_flags(build.Unit("")), str(tmp_path / "a.cc")]
    assert "unused parameter" in warnings(command)


@pytest.mark.slow
@pytest.mark.sampled(2)  # CI draws 2 of the cases.
@pytest.mark.parametrize("source", SOURCES)
def test_a_source_compiles_without_a_warning(source):
    """Each source compiles alone, as in an editor, although all_ops.cc includes others."""
    assert warnings(commands_by_source()[source]["arguments"]) == ""


@pytest.mark.slow
@pytest.mark.any_version
def test_rules_compile_without_a_warning(tmp_path):
    for kind in processes.module_of(SCRIPT.with_name("build_wheel.py")).every_kind():
        rule = rules.trace(kind, 0.5)
        (tmp_path / f"{rule.name}.cc").write_text(rule.source)
    (unit, *_) = build.arithmetic_units("", "rule", False)  # Its flags are those of any rule.
    files = [str(file) for file in tmp_path.iterdir()]
    assert files and warnings(["c++", *build.compile_flags(unit), *files]) == ""
