"""Nothing that another user could have put into the cache runs in this process."""

import ctypes
import logging
import os
import pathlib
import shutil
import stat
from unittest import mock

import harness
import pytest
from native_builds import ANSWERS_42, message_of_failed_build, reason_logged_by_training

from estimator_emb.native import build, cache, ops

OTHER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Returns the folder above/cache/programs with a file. The cache is above/cache."""
    monkeypatch.setenv("ESTIMATOR_EMB_CACHE", str(tmp_path / "above" / "cache"))
    folder = cache.private("programs")
    (folder / "program").write_bytes(b"")
    return folder


def unsafe(part, how, remedy=""):
    """Returns the whole message about a part of the cache."""
    return (
        f"another user could put code into the cache, because {part} {how}; {remedy}set "
        "ESTIMATOR_EMB_CACHE to a folder that only you can write"
    )


def unsafe_error():
    """Opens the folder, which must fail. Returns the message of the error."""
    return harness.refusal(cache.UnsafeError, cache.private, "programs")


@pytest.mark.parametrize("umask", [0, 0o002, 0o022])
def test_all_new_folders_are_for_this_user_only(umask, folder):
    shutil.rmtree(folder.parents[1])
    before = os.umask(umask)
    try:
        assert cache.private("programs") == cache.private("programs") == folder
    finally:
        os.umask(before)
    assert {stat.S_IMODE(one.stat().st_mode) for one in (folder, *folder.parents[:2])} == {0o700}


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o755, 0o1777])
def test_a_folder_open_to_others_is_refused(mode, folder):
    folder.chmod(mode)
    assert unsafe_error() == unsafe(
        folder, f"has mode {mode:04o}", f"chmod {mode & ~0o077:04o} {folder}, or "
    )


@pytest.mark.parametrize("level", [0, 1])
def test_others_may_not_replace_the_folder(level, folder):
    above = folder.parents[level]
    above.chmod(0o775)
    assert unsafe_error() == unsafe(above, "has mode 0775", f"chmod 0755 {above}, or ")
    # With mode 1777, as /tmp has it, a user can replace only his own files.
    for mode in (0o755, 0o1777):
        above.chmod(mode)
        assert cache.private("programs") == folder


@pytest.mark.parametrize("below", ["", "program", "inner/program"])
def test_links_are_refused(below, folder, tmp_path):
    (folder / "inner").mkdir()
    link = folder / below
    # The folder itself is replaced by a link to it, a file by a link to nothing.
    shutil.move(folder, tmp_path / "moved") if not below else link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / "moved")
    assert unsafe_error() == unsafe(link, "is a link")


def test_links_to_the_cache_are_followed_and_checked(folder, monkeypatch, tmp_path):
    """The user chose this link. The folder that it leads to must be safe."""
    above = folder.parents[1]
    (tmp_path / "link").symlink_to(above)
    monkeypatch.setenv("ESTIMATOR_EMB_CACHE", str(tmp_path / "link" / "cache"))
    assert cache.private("programs") == folder
    above.chmod(0o777)
    assert unsafe_error() == unsafe(above, "has mode 0777", f"chmod 0755 {above}, or ")


@as_root
@pytest.mark.parametrize("part", ["..", ".", "program", "inner/program"])
def test_files_and_folders_of_another_user_are_refused(part, folder):
    (folder / "inner").mkdir()
    (folder / "inner" / "program").write_bytes(b"")
    planted = pathlib.Path(os.path.normpath(folder / part))
    os.chown(planted, OTHER, -1)
    assert unsafe_error() == unsafe(planted, f"belongs to user {OTHER}")


@as_root
def test_a_user_takes_nothing_that_root_has_made(folder, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    os.chown(folder, OTHER, -1)
    assert unsafe_error() == unsafe(folder / "program", "belongs to user 0")


@as_root
def test_training_with_an_unsafe_cache_warns_and_loads_nothing(caplog, folder, native_library):
    path = pathlib.Path(build.library("quick", ANSWERS_42))
    os.chown(path, OTHER, -1)
    assert message_of_failed_build() == unsafe(path, f"belongs to user {OTHER}")
    assert reason_logged_by_training(caplog) == unsafe(path, f"belongs to user {OTHER}") + "."
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@as_root
def test_unsafe_programs_are_not_used(caplog, folder):
    pytest.importorskip("jax")
    from estimator_emb.backends.pjrt import backend

    assert backend._folder_of_programs() == str(folder)
    os.chown(folder / "program", OTHER, -1)
    assert backend._folder_of_programs() is None
    (said,) = harness.said(caplog)
    assert said.startswith("Programs that XLA compiles are not cached: another user could put ")


def test_a_library_without_its_symbols_is_built_again(caplog, folder, native_library):
    path = build.library("quick", ANSWERS_42, ["answer"])
    content = b"no symbols"  # With the seal of an undamaged file.
    pathlib.Path(path).write_bytes(content + cache._seal(pathlib.Path(path).name, content))
    assert build.library("quick", ANSWERS_42, ["answer"]) == path
    assert harness.said(caplog) == [f"{path} lacks the symbol answer: rebuilding it."]
    assert ctypes.CDLL(path).answer() == 42


def test_ops_are_checked_for_their_symbols(monkeypatch):
    """Loading the ops names the symbols that a library from the cache must define."""
    library = mock.Mock(side_effect=build.BuildError)  # Keeps its arguments and ends the call.
    monkeypatch.setattr(ops, "prebuilt_libraries", lambda: None)
    monkeypatch.setattr(build, "library", library)
    with pytest.raises(build.BuildError):
        ops.load()
    _, _, symbols, *_ = library.call_args.args
    assert "estimator_emb_take_kernels" in symbols  # The first function that is called.
