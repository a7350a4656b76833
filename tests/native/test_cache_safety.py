"""Files that another user could have put into the cache of built libraries are not loaded."""

import ctypes
import logging
import os
import pathlib
import shutil
import stat
import tempfile
from unittest import mock

import harness
import pytest
from native_builds import QUICK, reasons, refused

from estimator_emb.native import build, cache, ops

OTHER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")

pytestmark = pytest.mark.usefixtures("native_library")


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Returns the cache, in its own folder. Tests may change the permissions of both."""
    monkeypatch.setenv("ESTIMATOR_EMB_CACHE", str(tmp_path / "above" / "cache"))
    build.library("quick", QUICK)
    return tmp_path / "above" / "cache"


def unsafe(folder, part, how, remedy=""):
    return (
        f"another user could put a library into the cache {folder}, because {part} {how}; {remedy}"
        "set ESTIMATOR_EMB_CACHE to a folder that only you can write"
    )


def test_the_cache_is_made_for_this_user_alone(folder):
    before = os.umask(0)
    try:
        shutil.rmtree(folder.parent)
        path = build.library("quick", QUICK)
        made = os.stat(path).st_mtime_ns
        assert build.library("quick", QUICK) == path and os.stat(path).st_mtime_ns == made
    finally:
        os.umask(before)
    modes = {entry: stat.S_IMODE(entry.stat().st_mode) for entry in folder.iterdir()}
    assert [mode & 0o022 for mode in modes.values()] == [0, 0]
    assert {stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent)} == {0o700}


def writable(folder, part, mode):
    """Returns the message for a cache if others can write a part of its path."""
    # A folder like /tmp is meant for everybody.
    remedy = "" if mode & 0o1000 else f"chmod go-w {part}, or "
    return unsafe(folder, part, f"can be written by others (mode {mode:04o})", remedy)


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o772, 0o1777])
def test_a_folder_that_others_can_write_is_refused(mode, folder):
    folder.chmod(mode)
    assert refused() == writable(folder, folder, mode)


def test_a_parent_folder_that_others_can_write_is_refused(folder):
    folder.parent.chmod(0o770)
    assert refused() == writable(folder, folder.parent, 0o770)
    folder.parent.chmod(0o1777)  # Like /tmp: others cannot rename its contents.
    assert ctypes.CDLL(build.library("quick", QUICK)).answer() == 42


def test_links_to_the_cache_are_followed_and_checked(folder, monkeypatch, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(folder.parent)
    monkeypatch.setenv("ESTIMATOR_EMB_CACHE", str(link / "cache"))
    assert pathlib.Path(build.library("quick", QUICK)).parent == folder
    folder.chmod(0o777)
    assert refused() == writable(folder, folder, 0o777)


def test_xdg_cache_home_is_checked(monkeypatch, tmp_path):
    monkeypatch.delenv("ESTIMATOR_EMB_CACHE", raising=False)
    home = tmp_path / "xdg"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    home.mkdir()
    home.chmod(0o777)
    assert refused() == writable(home / "estimator_emb", home, 0o777)


@as_root
@pytest.mark.parametrize("above", [False, True])
def test_a_folder_of_another_user_is_refused(above, folder):
    part = folder.parent if above else folder
    os.chown(part, OTHER, -1)
    assert refused() == unsafe(folder, part, f"belongs to user {OTHER}")


def test_training_with_an_unsafe_cache_warns(caplog, folder):
    folder.chmod(0o777)
    assert reasons(caplog) == writable(folder, folder, 0o777) + "."
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def planted(path, tmp_path):
    """Writes a library with the right digest to `path`. Loading it would leave a trace file."""
    trace = tmp_path / "trace"
    code = f"""#include <cstdio>
        __attribute__((constructor)) void run() {{ std::fclose(std::fopen("{trace}", "w")); }}"""
    made = tmp_path / "planted.so"
    build.compile_to(made, [build.Unit(code)])
    content = made.read_bytes()
    pathlib.Path(path).write_bytes(content + cache._seal(pathlib.Path(path).name, content))
    return trace


def _by_mode(path):
    os.chmod(path, 0o666)
    return "can be written by others (mode 0666)"


def _by_owner(path):
    os.chown(path, OTHER, -1)
    return f"belongs to user {OTHER}"


@pytest.mark.parametrize("how", [_by_mode, pytest.param(_by_owner, marks=as_root)])
def test_a_planted_library_is_built_again(how, caplog, folder, tmp_path):
    path = build.library("quick", QUICK)
    trace = planted(path, tmp_path)
    why = how(path)
    assert build.library("quick", QUICK) == path
    assert harness.said(caplog) == [f"{path} {why}: rebuilding it."]
    assert ctypes.CDLL(path).answer() == 42 and not trace.exists()


def test_a_library_without_its_symbols_is_built_again(caplog, folder, tmp_path):
    path = build.library("quick", QUICK, ["answer"])
    planted(path, tmp_path)
    assert build.library("quick", QUICK, ["answer"]) == path
    assert harness.said(caplog) == [f"{path} lacks the symbol answer: rebuilding it."]
    assert ctypes.CDLL(path).answer() == 42


def test_ops_are_checked_for_their_symbols(monkeypatch):
    library = mock.Mock(return_value="ops.so")
    monkeypatch.setattr(ops, "prebuilt_libraries", lambda: None)
    monkeypatch.setattr(ops.build, "library", library)
    monkeypatch.setattr(ops, "_load", lambda *paths: paths)
    assert ops.load() == ("ops.so", "ops.so")
    assert "estimator_emb_take_kernels" in library.call_args.args[2]


@pytest.mark.parametrize("is_link", [False, True])
def test_a_linked_lock_changes_no_other_file(is_link, folder, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (folder / "lock").unlink()
    (folder / "lock").symlink_to(victim if is_link else tmp_path / "not there")
    (folder / f"{cache.SCRATCH}0a1b2c3d").mkdir()  # A killed build leaves such a folder.
    path = pathlib.Path(build.library("quick", QUICK))
    path.unlink()
    build.library("quick", QUICK)
    assert victim.read_text() == "precious" and not (tmp_path / "not there").exists()
    assert sorted(folder.iterdir()) == sorted([folder / "lock", path])
    assert (folder / "lock").lstat().st_size == 0


def test_another_users_failed_build_is_ignored(folder):
    path = pathlib.Path(build.library("quick", QUICK))
    path.unlink()
    path.with_suffix(".failed").write_text("do not build")
    path.with_suffix(".failed").chmod(0o666)
    assert build.library("quick", QUICK) == str(path)


@as_root
def test_a_user_may_load_what_root_has_built(monkeypatch, tmp_path):
    """A user loads root's build if only root can write it. Root loads no build of a user."""
    above = pathlib.Path(tempfile.mkdtemp())  # Unlike the test's own folder, others can enter it.
    above.chmod(0o755)
    folder = above / "cache"
    folder.mkdir(mode=0o755)
    monkeypatch.setenv("ESTIMATOR_EMB_CACHE", str(folder))

    def flaw_seen_by(user):
        os.seteuid(user)
        try:
            cache.check_folder(folder)
            return cache.flaw(pathlib.Path(path))
        except cache.UnsafeError as error:
            return str(error)
        finally:
            os.seteuid(0)

    path = build.library("quick", QUICK)
    assert flaw_seen_by(OTHER) == flaw_seen_by(0) == ""
    os.chown(path, OTHER, -1)
    assert flaw_seen_by(OTHER) == ""
    assert flaw_seen_by(OTHER + 1) == flaw_seen_by(0) == f"belongs to user {OTHER}"
    os.chown(folder, OTHER, -1)
    assert flaw_seen_by(OTHER) == ""
    assert flaw_seen_by(0) == unsafe(folder, folder, f"belongs to user {OTHER}")
    shutil.rmtree(above)
