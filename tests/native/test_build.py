"""If kernels cannot be built or do not apply, TensorFlow's ops train, and a line says why."""

import contextlib
import ctypes
import fcntl
import logging
import multiprocessing
import os
import pathlib
import pwd
import stat
import sys
import time
import types
from unittest import mock

import harness
import processes
import pytest
import tensorflow as tf
from native_builds import ANSWERS_42, message_of_failed_build, reason_logged_by_training

import estimator_emb as ee
from estimator_emb.checkpoints.restoring import training_lock
from estimator_emb.engine.kernels import TensorFlowKernels
from estimator_emb.engine.tables import storage
from estimator_emb.engine.tables.storage import StoredTable
from estimator_emb.native import build, cache, ops, select_kernels
from estimator_emb.spec.resolved import Table

# ANSWERS_42 is a small library. `native_library` skips a test if no compiler works here.
ANSWERS_43 = [build.Unit(ANSWERS_42[0].source.replace("42", "43"))]
BROKEN = "#!/bin/sh\necho 'x.cc:1: error: it is broken' >&2\nexit 3\n"


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ESTIMATOR_EMB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def fake_compiler(monkeypatch, tmp_path, script):
    """Makes a script the g++ that is found first, and returns its path."""
    program = tmp_path / "bin" / "g++"
    program.parent.mkdir()
    program.write_text(script)
    program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return program


def test_a_missing_compiler_is_logged(caplog, monkeypatch, empty_cache):
    monkeypatch.setenv("PATH", "")
    for _ in range(2):  # If the second training logged a line too, the helper would fail.
        assert reason_logged_by_training(caplog) == (
            "there is no C++ compiler (g++, c++, clang++) on PATH; install one, or a wheel that "
            "contains the kernels."
        )


def test_a_failed_build_is_not_tried_again_while_it_is_recorded(monkeypatch, empty_cache, tmp_path):
    runs = tmp_path / "runs"
    fake_compiler(monkeypatch, tmp_path, BROKEN.replace("echo", f"echo run >> {runs}\necho", 1))
    first = message_of_failed_build()
    lock, failed = sorted(empty_cache.iterdir())
    assert lock.name == "lock"
    assert first == (
        "the compiler failed with code 3: x.cc:1: error: it is broken "
        f"(not tried again while {failed} exists)"
    )
    assert message_of_failed_build() == first
    assert runs.read_text() == "run\n"
    failed.unlink()
    assert message_of_failed_build() == first
    assert runs.read_text() == "run\n" * 2
    failed.write_text("")  # Truncated by a crash.
    assert message_of_failed_build() == first
    assert runs.read_text() == "run\n" * 3


def test_another_compiler_is_tried_after_a_failed_build(
    monkeypatch, empty_cache, tmp_path, native_library
):
    with monkeypatch.context() as patch:
        fake_compiler(patch, tmp_path, BROKEN)
        message_of_failed_build()
    assert ctypes.CDLL(build.library("quick", ANSWERS_42)).answer() == 42


# again: the next training tries again if the fault may pass: a killed compiler, a full disk.
@pytest.mark.parametrize(
    ("script", "said", "again"),
    [
        ("#!/nowhere/sh\n", "g++ cannot be run (No such file or directory)", True),
        ("\x7fELF not a program", "g++ cannot be run (Exec format error)", True),
        ("#!/bin/sh\nkill -9 $$\n", "the compiler failed with code ", True),
        ("#!/bin/sh\necho 'No space left on device' >&2; exit 1\n", "failed with code 1", True),
        ("#!/bin/sh\nexit 0\n", "g++ reports success, but made no .o file (not tried", False),
        ("#!/bin/sh\nfor last; do :; done; : > $last\n", "but made no .o file (not tried", False),
    ],
)
def test_a_compiler_that_makes_nothing_is_named(
    script, said, again, monkeypatch, empty_cache, tmp_path
):
    fake_compiler(monkeypatch, tmp_path, script)
    assert said in message_of_failed_build()
    assert any(empty_cache.glob("quick-*.failed")) == (not again)


def test_a_compiler_output_that_is_no_library_is_refused(monkeypatch, empty_cache, tmp_path):
    """Only loading finds that out: the cache keeps any output, with its digest."""
    fake_compiler(monkeypatch, tmp_path, "#!/bin/sh\nfor last; do :; done; echo text > $last\n")
    path = build.library("quick", ANSWERS_42)
    message = harness.refusal(build.BuildError, ops._open, path)
    assert message.startswith(f"{path} cannot be loaded: {path}: ")


@pytest.mark.slow
def test_a_hanging_compiler_is_killed(caplog, monkeypatch, empty_cache, tmp_path):
    """At the time limit, the compiler is killed with its child process, a `sleep`."""
    caplog.set_level(logging.INFO, "estimator_emb")
    monkeypatch.setattr(build, "_TIMEOUT", 0.6)  # Messages round 0.6 s to 1 s.
    monkeypatch.setattr(build, "_PROGRESS", 0.2)
    child = tmp_path / "child"

    def clock():
        """Stays at 0 s until the log has a line and the child runs, then passes the limit."""
        return 100.0 * bool(harness.said(caplog) and child.exists() and child.read_text())

    monkeypatch.setattr(time, "monotonic", clock)
    script = f"#!/bin/sh\nsleep 10000 &\necho $! > {child}\nwait\n"
    program = fake_compiler(monkeypatch, tmp_path, script)
    said = message_of_failed_build()
    (failed,) = empty_cache.glob("quick-*.failed")
    assert said == f"the compiler took more than 1 s (not tried again while {failed} exists)"
    assert message_of_failed_build() == said
    assert harness.said(caplog)[0] == (
        f"{program} is still running after 0 s (limit: 1 s). ESTIMATOR_EMB_NATIVE=0 trains "
        "without the kernels."
    )
    monkeypatch.undo()  # Waiting needs the real clock.

    def is_gone():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return " Z " in pathlib.Path(f"/proc/{child.read_text().strip()}/stat").read_text()
        return True

    processes.until(is_gone, said=lambda: "what the compiler had started lives on")


def test_an_unwritable_cache_is_logged(caplog, monkeypatch, tmp_path, native_library):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ESTIMATOR_EMB_CACHE", str(tmp_path / "file" / "cache"))
    assert reason_logged_by_training(caplog) == (
        f"the cache {tmp_path}/file/cache/kernels cannot be written (Not a directory); set "
        "ESTIMATOR_EMB_CACHE to another folder."
    )


def test_disabled_kernels_are_logged(caplog):
    reason = reason_logged_by_training(caplog, enabled=False)
    assert reason == "ESTIMATOR_EMB_NATIVE is 0; unset it to enable them."


def test_an_invalid_value_of_the_variable_for_kernels_is_refused(monkeypatch):
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "yes")
    message = "Environment variable ESTIMATOR_EMB_NATIVE must be '0' or '1'; got 'yes'."
    assert harness.refusal(ValueError, select_kernels.kernels_for, [], 1, None) == message


def test_tables_in_shards_without_accumulation_are_logged(caplog, native_library):
    """The kernels for tables in shards cannot apply the gradients of 3 cores one by one."""
    core_by_core = ee.AdagradParameters(0.1, use_gradient_accumulation=False)
    assert reason_logged_by_training(caplog, core_by_core, num_cores=3, shards=2) == (
        "table t is in shards, and its optimizer does not accumulate the gradients of several "
        "cores; set use_gradient_accumulation=True."
    )


@pytest.mark.parametrize("rows", [2**31 - 1, 2**31])
def test_tables_of_2_31_rows_use_tensorflows_ops(rows, caplog, native):
    """The kernels keep ids in int32. A table's number of rows must fit into int32, too."""
    caplog.set_level(logging.INFO, "estimator_emb")
    sgd = ee.StochasticGradientDescentParameters(0.1)
    table = Table("t", ee.TableConfig(rows, 1, tf.zeros_initializer()), (), optimizer=sgd)
    with tf.Graph().as_default():
        stored = StoredTable(**vars(table), variables=storage.create(table, "t", False))
        kernels = select_kernels.kernels_for([stored], 1, None)
    too_many = "table t has 2^31 rows or more; divide it into smaller tables to use them."
    refused = [f"Tables use TensorFlow's ops, without native kernels: {too_many}"]
    assert isinstance(kernels, TensorFlowKernels) == (rows == 2**31)
    assert harness.said(caplog) == (refused if rows == 2**31 else [])


def test_the_environment_sets_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("ESTIMATOR_EMB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    # Each setting overrides those above it. "." must become absolute: a bare file name would not be
    # looked up in this folder.
    for name, value, folder in (
        ("HOME", tmp_path, ".cache/estimator_emb"),
        ("XDG_CACHE_HOME", tmp_path / "xdg", "xdg/estimator_emb"),
        ("ESTIMATOR_EMB_CACHE", tmp_path / "own", "own"),
        ("ESTIMATOR_EMB_CACHE", "~/own", "own"),
        ("ESTIMATOR_EMB_CACHE", ".", "."),
    ):
        monkeypatch.setenv(name, str(value))
        assert cache.directory() == tmp_path / folder


@pytest.mark.parametrize("home", [None, ""])
def test_kernels_are_not_built_without_a_home(home, monkeypatch, tmp_path):
    for name in ("ESTIMATOR_EMB_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    # First, the system's list of users has a home. Then the user is not on the list.
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: types.SimpleNamespace(pw_dir=str(tmp_path)))
    assert cache.directory() == tmp_path / ".cache" / "estimator_emb"
    monkeypatch.setattr(pwd, "getpwuid", mock.Mock(side_effect=KeyError))
    nowhere = (
        "there is no home directory to keep the kernels in; set ESTIMATOR_EMB_CACHE to a folder"
    )
    assert message_of_failed_build() == nowhere
    if home is None:  # "~" cannot be replaced either.
        monkeypatch.setenv("ESTIMATOR_EMB_CACHE", "~/own")
        assert message_of_failed_build() == nowhere


def test_modules_import_on_a_system_without_fcntl(monkeypatch):
    """On Windows, for example, the modules that use fcntl must still import."""
    for name in ("fcntl", "pwd"):
        monkeypatch.setitem(sys.modules, name, None)
    for module in (training_lock, cache):
        without = processes.module_of(pathlib.Path(module.__file__))
    assert harness.refusal(without.BuildError, without.directory) == (  # Of `cache`, the last.
        "this system lacks Python's fcntl, needed to lock the cache of kernels"
    )


def flip_a_bit(path):
    content = bytearray(pathlib.Path(path).read_bytes())
    content[99] ^= 1
    pathlib.Path(path).write_bytes(content)


def make_unreadable(path):
    os.chmod(path, 0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")


DAMAGES = {
    "cut": lambda path: os.truncate(path, os.path.getsize(path) // 2),
    "a flipped bit": flip_a_bit,
    "of another build": lambda path: os.replace(build.library("quick", ANSWERS_43), path),
    "a directory": lambda path: (os.unlink(path), os.mkdir(path)),
    "unreadable": make_unreadable,
}


@pytest.mark.fast(2)  # All cases but two are slow.
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_library_is_built_again(damage, caplog, native_library, empty_cache):
    path = build.library("quick", ANSWERS_42)
    damage(path)
    caplog.clear()
    assert build.library("quick", ANSWERS_42) == path and not os.path.islink(path)
    assert ctypes.CDLL(path).answer() == 42
    assert harness.said(caplog) == [f"{path} is damaged: rebuilding it."]
    assert build.library("quick", ANSWERS_42) == path
    assert len(harness.said(caplog)) == 1


def test_a_damaged_library_in_an_unwritable_cache_is_refused(
    monkeypatch, native_library, empty_cache
):
    path = build.library("quick", ANSWERS_42)
    (empty_cache / "lock").unlink()
    (empty_cache / "lock").mkdir()  # Root can write everywhere else.
    assert build.library("quick", ANSWERS_42) == path
    os.truncate(path, 9)
    assert message_of_failed_build() == (
        f"{path} is damaged, and the cache {empty_cache} cannot be written (Is a directory); set "
        "ESTIMATOR_EMB_CACHE to another folder"
    )


def test_leftovers_of_killed_builds_are_removed(native_library, empty_cache, tmp_path):
    path = build.library("quick", ANSWERS_42)
    left, other = empty_cache / f"{cache.SCRATCH}0a1b2c3d", empty_cache / "notes"
    for folder in (left, other):
        folder.mkdir()
        (folder / "0.cc").write_text("")
    assert build.library("quick", ANSWERS_42) == path
    assert left.exists()  # Nothing was built, so another process may be building there.
    os.unlink(path)
    assert build.library("quick", ANSWERS_42) == path
    assert not left.exists() and other.exists()


@pytest.mark.slow
def test_a_lock_that_is_never_released_ends_the_build(
    caplog, monkeypatch, empty_cache, native_library
):
    caplog.set_level(logging.INFO, "estimator_emb")
    monkeypatch.setattr(build, "_TIMEOUT", 1.1)  # A process waits twice as long: 2.2 s.
    empty_cache.mkdir(0o700, parents=True)
    with open(empty_cache / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        said = message_of_failed_build()
        assert said == f"another process has held the lock {empty_cache}/lock for 2 s"
    assert harness.said(caplog) == ["Waiting for another process that is building native kernels."]


@pytest.mark.slow
def test_concurrent_processes_build_once(native_library, monkeypatch, empty_cache, tmp_path):
    """Of three processes, a single process runs the slow compiler, and all get the library."""
    real = build._compiler()
    script = f'#!/bin/sh\necho run >> {tmp_path}/runs\nsleep 0.5\nexec {real} "$@"\n'
    fake_compiler(monkeypatch, tmp_path, script)
    with multiprocessing.get_context("fork").Pool(3) as pool:
        paths = {*pool.starmap(build.library, [("quick", ANSWERS_42)] * 3, chunksize=1)}
    assert len(paths) == 1
    assert ctypes.CDLL(paths.pop()).answer() == 42
    assert (tmp_path / "runs").read_text().split() == ["run"] * 2  # Once to compile, once to link.
    assert len(list(empty_cache.iterdir())) == 2  # The library and the lock.


@pytest.mark.slow
def test_a_failed_build_with_sanitizers_fails_the_tests(monkeypatch, empty_cache, tmp_path):
    """A test of the kernels must fail then. If it were skipped, it would look like a pass."""
    fake_compiler(monkeypatch, tmp_path, BROKEN)
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE_SANITIZE", "1")
    test = "test_native_kernels.py::test_results_do_not_depend_on_threads"
    command = [sys.executable, "-m", "pytest", "-q", test]
    done = processes.ended(command, 1, pathlib.Path(__file__).parent, None, None)
    assert "the compiler failed with code 3" in done.stdout
