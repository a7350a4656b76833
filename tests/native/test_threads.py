"""Runs the ops under the thread sanitizer, as several trainers in one process do.

The sanitizer must see every lock, but TensorFlow's libraries are not compiled for it. So the ops
and the arithmetic are compiled into a program with `threads/runtime.h` instead of TensorFlow's
headers.
"""

import os
import pathlib
import re
import shutil
import subprocess

import processes
import pytest

import estimator_emb as ee
from estimator_emb.native import build, rules

HERE = pathlib.Path(__file__).parent / "threads"
TENSORFLOWS = re.compile(r'#include "(tensorflow/[^"]+)"')
SANITIZE = ("-std=c++17", "-fsanitize=thread", "-g", "-O1", "-w")
FLAGS = {
    "kernels.cc": ["-DESTIMATOR_EMB_NAME=kernels_any"],
    "rule.cc": ["-DESTIMATOR_EMB_NAME=rule_any"],
    "servers.cc": ['-DESTIMATOR_EMB_SOURCES=""'],
}
FOUND = 66  # The exit code if the sanitizer finds a problem.

# Protection -> (file, text that keeps threads apart, its replacement, source to compile).
TAKEN_OUT = {
    "lock of variables": (
        "runtime.h",
        "for (auto* mu : all) write_ ? mu->lock() : mu->lock_shared();\n      locked_ = all;",
        "",
        "ops.cc",
    ),
    "wait for the others": (
        "runtime.h",
        "while (shared->done.load() < count) shared->all_done.wait(lock);",
        "",
        "ops.cc",
    ),
    "rows of a part": ("grouping.h", "to += kAll ||", "to += true ||", "kernels.cc"),
}

pytestmark = [pytest.mark.slow, pytest.mark.any_version]


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    """Returns the first compiler that links a program with the thread sanitizer."""
    folder = tmp_path_factory.mktemp("tsan")
    (folder / "empty.cc").write_text("int main() {}")
    for name in build._COMPILERS:
        path = shutil.which(name)
        command = [path, *SANITIZE, folder / "empty.cc", "-o", folder / "empty"]
        if path and subprocess.run(command, capture_output=True).returncode == 0:
            return path
    return pytest.skip("there is no compiler with the thread sanitizer")


def compiled(compiler, folder, files, sources=build.HERE):
    """Compiles files with the headers in `sources`. Returns {name of the file: object}."""
    text = "".join(path.read_text() for path in build.HERE.glob("*.[ch]*"))
    for header in TENSORFLOWS.findall(text):
        path = folder / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('#include "threads/runtime.h"\n')
    include = [f"-I{folder}", f"-I{sources}", f"-I{HERE.parent}"]
    objects, running = {}, []
    for file in files:
        objects[file.name] = folder / f"{file.stem}.o"
        flags = [*FLAGS.get(file.name, ()), "-c", file, "-o", objects[file.name]]
        running.append(subprocess.Popen([compiler, *SANITIZE, *include, *flags]))
    assert [one.wait() for one in running] == [0] * len(running)
    return objects


@pytest.fixture(scope="module")
def objects(compiler, tmp_path_factory):
    folder = tmp_path_factory.mktemp("objects")
    descent = rules.trace(ee.StochasticGradientDescentParameters(1.0), None)
    numbers = ", ".join(map(str, descent.constants)).replace("inf", "INFINITY")
    (folder / "rule.cc").write_text(
        descent.source + f"extern const float kRuleConstants[] = {{{numbers}}};\n"
        f"extern const int kRuleConstantsCount = {len(descent.constants)};\n"
    )
    ours = [build.HERE / name for name in ("kernels.cc", "ops.cc", "trainers.cc", "servers.cc")]
    return compiled(compiler, folder, [HERE / "driver.cc", folder / "rule.cc", *ours])


def ran(compiler, objects, folder):
    """Links a program and runs it with the memory layout that the sanitizer expects."""
    program = folder / "program"
    subprocess.run([compiler, "-fsanitize=thread", *objects.values(), "-o", program], check=True)
    setarch = shutil.which("setarch")
    command = [*([setarch, "--addr-no-randomize"] if setarch else []), program]
    options = f"halt_on_error=1 exitcode={FOUND}"
    environment = {**os.environ, "TSAN_OPTIONS": options}
    return processes.ended(command, None, None, processes.HANGS, environment)


def test_concurrent_trainers_have_no_data_race(compiler, objects, tmp_path):
    done = ran(compiler, objects, tmp_path)
    assert (done.returncode, done.stdout) == (0, "The tables are right.\n"), done.stderr[-8000:]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", TAKEN_OUT)
def test_the_sanitizer_finds_removed_protections(what, compiler, objects, tmp_path):
    name, text, instead, affected = TAKEN_OUT[what]
    sources = tmp_path / "sources"
    sources.mkdir()
    for file in (*build.HERE.glob("*.h"), build.HERE / affected):
        shutil.copy(file, sources)
    whole = (sources / name).read_text()
    assert whole.count(text) == 1
    (sources / name).write_text(whole.replace(text, instead))
    others = compiled(compiler, tmp_path, [sources / affected], sources)
    done = ran(compiler, {**objects, **others}, tmp_path)
    assert "WARNING: ThreadSanitizer: " in done.stderr, done.stderr[-2000:]
    assert done.returncode == FOUND
