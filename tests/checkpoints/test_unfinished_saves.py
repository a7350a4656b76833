"""Training removes files left by killed saves when it begins, but no file still being written."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import processes
import pytest
from words_program import call, make

from estimator_emb.checkpoints.restoring import model_directory


def leave(model_dir, *names):
    for name in names:
        (model_dir / name).mkdir(parents=True)
        (model_dir / name / "part-00000-of-00001.data-00000-of-00001.tempstate1").write_text("x")
    return [model_dir / name for name in names]


def test_unfinished_saves_are_removed_when_training_begins(tmp_path):
    gone = leave(tmp_path, "model.ckpt-7_temp", "model.ckpt-12_temp_5f3a")
    kept = leave(tmp_path, "model.ckpt-7_temporary", "my_model.ckpt-1_temp", "eval")
    estimator = make(tmp_path)
    call("evaluate", estimator)
    call("predict", estimator)
    assert all(one.exists() for one in gone)
    call("train", estimator)
    assert not any(one.exists() for one in gone)
    assert all(one.exists() for one in kept)
    assert estimator.latest_checkpoint() == f"{tmp_path}/model.ckpt-1"


@pytest.mark.parametrize("hours, stays", [(0.9, True), (1.1, False)])
def test_without_a_lock_only_old_saves_are_removed(hours, stays, tmp_path):
    (folder,) = leave(tmp_path, "model.ckpt-7_temp")
    then = time.time() - hours * 3600
    for file in (*folder.iterdir(), folder):
        os.utime(file, (then, then))
    model_directory.remove_unfinished_saves(str(tmp_path), alone=False)
    assert folder.exists() == stays


@pytest.mark.slow
def test_training_removes_the_files_of_a_killed_save(tmp_path):
    program = """
        import sys
        import words_program
        estimator = words_program.make(sys.argv[1], rows=2_000_000)
        estimator.train(lambda params: words_program.input_fn(params).repeat())
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        env=processes.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def stopped_within_a_save():
        process.send_signal(signal.SIGCONT)
        time.sleep(0.002)
        process.send_signal(signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        return list(tmp_path.glob("model.ckpt-*_temp/*"))

    processes.until(lambda: list(tmp_path.glob("model.ckpt-*")))
    processes.until(stopped_within_a_save)
    begun = list(tmp_path.glob("model.ckpt-*_temp/*"))
    # While the process lives, another training leaves its files alone.
    with pytest.raises(RuntimeError, match=f"is held by process {process.pid} on "):
        call("train", make(tmp_path, rows=2_000_000))
    assert all(one.exists() for one in begun)
    process.kill()
    process.wait()
    assert list(tmp_path.glob("model.ckpt-*_temp"))
    call("train", make(tmp_path, rows=2_000_000))
    assert not list(tmp_path.glob("model.ckpt-*_temp"))
