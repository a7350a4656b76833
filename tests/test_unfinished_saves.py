# SPDX-License-Identifier: Apache-2.0
"""What killed saves leave is removed when training begins, and nothing that is being written."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from test_restoring import call, make

import estimator_emb as ee
from estimator_emb.checkpoints import unfinished_saves


def leave(model_dir, *names):
    for name in names:
        (model_dir / name).mkdir(parents=True)
        (model_dir / name / "part-00000-of-00001.data-00000-of-00001.tempstate1").write_text("x")
    return [model_dir / name for name in names]


@pytest.mark.parametrize("way", ["host", "emulated"])
def test_removed_when_training_begins(way, tmp_path):
    """Of any save; nothing else, and not when something is only read."""
    gone = leave(tmp_path, "model.ckpt-7_temp", "model.ckpt-12_temp_5f3a")
    kept = leave(tmp_path, "model.ckpt-7_temporary", "my_model.ckpt-1_temp", "eval")
    estimator = make(tmp_path, way)
    call("evaluate", estimator)
    call("predict", estimator)
    assert all(one.exists() for one in gone)
    call("train", estimator)
    assert not any(one.exists() for one in gone)
    assert all(one.exists() for one in kept)
    assert estimator.latest_checkpoint() == f"{tmp_path}/model.ckpt-1"


def test_a_worker_removes_nothing(tmp_path, monkeypatch):
    """Only the chief saves, and knows what it has begun."""
    (folder,) = leave(tmp_path, "model.ckpt-7_temp")
    monkeypatch.setattr(ee.RunConfig, "is_chief", property(lambda config: False))
    estimator = make(tmp_path)
    monkeypatch.setattr(type(estimator).__mro__[1], "train", lambda *_, **__: folder.exists())
    assert call("train", estimator)
    assert folder.exists()


def started(program, *arguments):
    """A process that has said that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def stop(process):
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize(
    "file, mode, stays",
    [
        # Its save is under way.
        ("model.ckpt-7_temp/part-0", "wb", True),
        # It trains, and may save at any time.
        ("events.out.tfevents.1", "ab", True),
        # It evaluates, or shows the curves.
        ("eval/events.out.tfevents.1", "ab", False),
        ("events.out.tfevents.0", "rb", False),
    ],
)
def test_other_programs(file, mode, stays, tmp_path):
    """They hold no lock of ours: what they write tells."""
    (folder,) = leave(tmp_path, "model.ckpt-7_temp")
    (tmp_path / "eval").mkdir()
    (tmp_path / "events.out.tfevents.0").write_text("")
    other = started(
        """
        import sys, time
        with open(sys.argv[1], sys.argv[2]):
            print("ready", flush=True)
            time.sleep(60)
        """,
        tmp_path / file,
        mode,
    )
    try:
        with unfinished_saves.removed(str(tmp_path)):
            assert folder.exists() == stays
    finally:
        stop(other)
    with unfinished_saves.removed(str(tmp_path)):
        assert not folder.exists()


def test_another_training(tmp_path):
    """It holds the lock, though it writes nothing at the moment; a killed one holds none."""
    (folder,) = leave(tmp_path, "model.ckpt-7_temp")
    other = started(
        """
        import fcntl, os, sys, time
        fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_SH)
        print("ready", flush=True)
        time.sleep(60)
        """,
        tmp_path,
    )
    try:
        with unfinished_saves.removed(str(tmp_path)):
            assert folder.exists()
    finally:
        stop(other)
    with unfinished_saves.removed(str(tmp_path)):
        assert not folder.exists()
        (folder,) = leave(tmp_path, "model.ckpt-8_temp")
        # Another one in this process, a thread's.
        with unfinished_saves.removed(str(tmp_path)):
            assert folder.exists()
    with unfinished_saves.removed(str(tmp_path)):
        assert not folder.exists()


@pytest.mark.parametrize("hours, stays", [(0.9, True), (1.1, False)])
def test_where_other_machines_write(hours, stays, tmp_path, monkeypatch):
    """Nobody's locks or files are seen from here: the age of what is there decides."""
    monkeypatch.setattr(unfinished_saves, "_LOCAL", {"none"})
    (folder,) = leave(tmp_path, "model.ckpt-7_temp")
    then = time.time() - hours * 3600
    for file in (*folder.iterdir(), folder):
        os.utime(file, (then, then))
    with unfinished_saves.removed(str(tmp_path)):
        assert folder.exists() == stays


@pytest.mark.slow
def test_a_save_that_is_killed(tmp_path):
    """A training is killed while it saves 400 MB, and trained on."""
    program = """
        import sys
        import test_unfinished_saves
        test_unfinished_saves.train(sys.argv[1], 25_000_000)
    """
    here = os.path.dirname(__file__)
    environment = {**os.environ, "PYTHONPATH": f"{os.path.dirname(here)}{os.pathsep}{here}"}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not (begun := list(tmp_path.glob("model.ckpt-*_temp/*"))):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.002)
    # While it lives, another training leaves its files alone.
    process.send_signal(signal.SIGSTOP)
    with unfinished_saves.removed(str(tmp_path)):
        assert all(one.exists() for one in begun)
    process.kill()
    process.wait()
    assert list(tmp_path.glob("model.ckpt-*_temp"))
    with unfinished_saves.removed(str(tmp_path)):
        assert not list(tmp_path.glob("model.ckpt-*_temp"))


def train(model_dir, rows):
    call("train", make(model_dir, rows=rows))


def test_a_filesystem_of_another_machine_in_a_folder_with_a_blank(tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "36 22 0:30 / /mnt/of\\040all rw,relatime shared:2 - nfs4 server:/all rw\n"
    )
    monkeypatch.setattr(unfinished_saves, "_MOUNTS", str(mounts))
    assert unfinished_saves._is_remote("/mnt/of all/model")
    assert not unfinished_saves._is_remote("/mnt/of some/model")
