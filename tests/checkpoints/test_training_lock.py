"""A second training in the same model directory is refused, and leftovers of the first removed.

`make` returns a TPUEstimator with a small table. `call` calls it, here mostly to train one step.
"""

import errno
import fcntl
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import harness
import processes
import pytest
import tensorflow as tf
from harness import AfterStep
from words_program import call, make

import estimator_emb as ee
from estimator_emb.checkpoints.restoring import model_directory, training_lock

HERE = f"this process ({os.getpid()})"


def check_refused(model_dir, who=HERE):
    """Checks the error of a second training, including the first training's start time."""
    message = harness.refusal(RuntimeError, call, "train", make(model_dir))
    begin, _, end = message.partition(", since ")
    begun, _, end = end.partition(",")
    assert 0 <= time.time() - time.mktime(time.strptime(begun)) < processes.HANGS
    assert begin == f"train: model_dir '{model_dir}' is held by {who}"
    assert end.startswith(" which trains there. Each would overwrite the checkpoints of the other")


def lock_of(model_dir):
    return pathlib.Path(model_dir, training_lock.FILE)


@pytest.mark.slow
def test_refuses_a_second_estimator_in_the_same_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model_dir = tmp_path / "model"
    (tmp_path / "link").symlink_to("model")
    estimator = make(model_dir)
    done = []

    def inside():
        assert lock_of(model_dir).exists()
        for spelling in (model_dir, "model", f"{model_dir}/", "link", f"file://{model_dir}"):
            check_refused(spelling)
        with pytest.raises(RuntimeError):  # The same estimator, within its own training.
            call("train", estimator)
        for reads in ("evaluate", "predict", "export"):
            call(reads, make(model_dir))
        call("train", make(tmp_path / "other"))
        done.append(True)

    for step, hooks in ((1, [AfterStep(inside)]), (2, [])):
        call("train", estimator, hooks=hooks)
        assert done == [True]
        assert estimator.latest_checkpoint() == f"{model_dir}/model.ckpt-{step}"
        assert not lock_of(model_dir).exists()


def test_a_failed_training_releases_the_lock(tmp_path):
    with pytest.raises(ZeroDivisionError):
        call("train", make(tmp_path), hooks=[AfterStep(lambda: 1 / 0)])
    assert not lock_of(tmp_path).exists()
    with training_lock.held(str(tmp_path)) as alone:
        assert alone and not os.access(lock_of(tmp_path), os.X_OK)  # Nobody runs this file.


def test_refuses_training_while_another_process_trains(tmp_path):
    who = "process 7 on trainer-3"
    with open(lock_of(tmp_path), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # Held as by another process: by another open file.
        file.write(f"{who}, since {time.ctime()}")
        file.flush()
        check_refused(tmp_path, who)
        assert [file.name for file in tmp_path.iterdir()] == [training_lock.FILE]
    assert who in lock_of(tmp_path).read_text()
    lock_of(tmp_path).write_text("of a killed process" * 9)
    estimator = make(tmp_path)

    def inside():
        text = lock_of(tmp_path).read_text()
        assert text.startswith(f"process {os.getpid()} on {socket.gethostname()}, since ")
        assert "killed" not in text

    call("train", estimator, hooks=[AfterStep(inside)])
    assert not lock_of(tmp_path).exists()


def test_a_forked_process_does_not_hold_the_lock(tmp_path):
    """It inherits the descriptor, and may outlive the training. Here it sleeps until the end."""
    with training_lock.held(str(tmp_path)):
        if not (child := os.fork()):
            signal.pause()
            os._exit(0)
    try:
        with training_lock.held(str(tmp_path)) as alone:
            assert alone
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_forked_process_does_not_release_the_lock(tmp_path):
    lock = training_lock.held(str(tmp_path))
    assert lock.__enter__()
    if not (child := os.fork()):
        lock.__exit__(None, None, None)  # Leaves the block of the parent's training.
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    with pytest.raises(RuntimeError), training_lock.held(str(tmp_path)):
        pass
    lock.__exit__(None, None, None)
    assert not lock_of(tmp_path).exists()


def test_a_worker_is_not_refused_and_removes_nothing(tmp_path, monkeypatch):
    """In a cluster, only the chief saves, locks the folder and knows its unfinished saves."""
    unfinished = tmp_path / "model.ckpt-7_temp"
    unfinished.mkdir()
    with training_lock.held(str(tmp_path)):
        monkeypatch.setattr(ee.RunConfig, "is_chief", property(lambda config: False))
        estimator = make(tmp_path)
        base = type(estimator).__mro__[1]  # The class that trains, here without a training.
        monkeypatch.setattr(base, "train", lambda *_, **__: unfinished.exists())
        assert call("train", estimator)


@pytest.mark.parametrize(
    "place, why_not",
    [
        ("ram://{}", "its file system has no locks"),
        ("{}", f"[Errno {errno.ENOLCK}] {os.strerror(errno.ENOLCK)}"),
    ],
)
def test_trains_without_a_lock_if_unsupported(place, why_not, tmp_path, monkeypatch, caplog):
    def no_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(training_lock.fcntl, "flock", no_locks)
    model_dir = place.format(tmp_path)
    with caplog.at_level("INFO", "estimator_emb"):
        assert call("train", make(model_dir)).latest_checkpoint() == f"{model_dir}/model.ckpt-1"
        with training_lock.held(model_dir) as alone:
            assert not alone
    (line,) = (line for line in harness.said(caplog) if "locked" in line)
    assert line.startswith(f"model_dir '{model_dir}' cannot be locked ({why_not})")
    assert not training_lock._descriptors


def test_only_one_thread_holds_the_lock(tmp_path):
    """Threads take the lock again and again, and each holder removes the lock file."""
    inside, counts, held, refused = [], [], [], []
    files = len(os.listdir("/proc/self/fd"))

    def many():
        for _ in range(200):
            try:
                with training_lock.held(str(tmp_path)):
                    inside.append(None)
                    counts.append(len(inside))
                    while not refused and len(inside) == 1:  # Until a second thread comes.
                        time.sleep(0.001)
                    time.sleep(0)
                    held.append(None)
                    inside.pop()
            except RuntimeError:
                refused.append(None)

    threads = [threading.Thread(target=many) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(held) + len(refused) == 8 * 200
    assert set(counts) == {1}
    assert not lock_of(tmp_path).exists() and not training_lock._descriptors
    assert len(os.listdir("/proc/self/fd")) < files + 50  # Most are closed again.


@pytest.mark.fast(2)
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("kind", ["plain", "local"])
def test_a_training_whose_lock_is_removed_does_not_save(
    kind, replaced, installed, tmp_path, assert_recorded
):
    """The file is deleted, and maybe a second training creates its own."""
    path = lock_of(tmp_path)

    class Removes(tf.compat.v1.train.SessionRunHook):
        def before_run(self, run_context):
            path.unlink(missing_ok=True)
            if replaced:
                path.write_text("of another")

    def model(features, labels, mode, spec):
        step = tf.compat.v1.train.get_global_step().assign_add(1)
        return spec(mode, loss=tf.reduce_sum(features), train_op=step)

    def input_fn(params=None):
        return tf.data.Dataset.from_tensors(tf.zeros([2]))

    train = harness.of_kind(kind, model, tmp_path).train
    message = harness.refusal(RuntimeError, train, input_fn, [Removes()])
    assert message.startswith(f"train: the lock '{path}' of this training was removed or replaced")
    if not replaced:  # Compares the whole text with tests/messages.json.
        assert_recorded(message)
    assert tf.train.latest_checkpoint(str(tmp_path)) == f"{tmp_path}/model.ckpt-0"  # No step.
    assert path.exists() is replaced


def test_text_of_a_lock_file_is_escaped_and_shortened(tmp_path):
    with open(lock_of(tmp_path), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("\x1b[2J\nevil" + "x" * 900)
        file.flush()
        message = harness.refusal(RuntimeError, call, "train", make(tmp_path))
        file.truncate(200)
        whole = harness.refusal(RuntimeError, training_lock.held(str(tmp_path)).__enter__)
    # The first 200 characters. The 9 before the x are an escape, a line break and 7 others.
    who = r"\x1b[2J\nevil" + "x" * (200 - 9)
    assert message.startswith(f"train: model_dir '{tmp_path}' is held by {who}..., which trains")
    assert f"held by {who}, which trains" in whole


def leave(model_dir, *names):
    """Makes folders as killed saves leave them, and returns their paths."""
    for name in names:
        (model_dir / name).mkdir(parents=True)
        (model_dir / name / "part-00000-of-00001.data-00000-of-00001.tempstate1").write_text("x")
    return [model_dir / name for name in names]


def test_unfinished_saves_are_removed_when_training_begins(tmp_path):
    gone = leave(tmp_path, "model.ckpt-7_temp", "model.ckpt-12_temp_5f3a")
    kept = leave(tmp_path, "model.ckpt-7_temporary", "my_model.ckpt-1_temp", "eval")
    estimator = make(tmp_path)
    call("predict", estimator)
    assert all(one.exists() for one in gone)
    call("train", estimator)
    assert not any(one.exists() for one in gone)
    assert all(one.exists() for one in kept)
    assert estimator.latest_checkpoint() == f"{tmp_path}/model.ckpt-1"


@pytest.mark.parametrize(
    "hours, moved, stays", [(0.9, False, True), (1.1, False, False), (1.1, True, True)]
)
def test_without_a_lock_only_old_saves_are_removed(hours, moved, stays, tmp_path, caplog):
    caplog.set_level("INFO", "estimator_emb")
    (folder,) = leave(tmp_path, "model.ckpt-7_temp")
    if moved:  # As if its save moved a file after the folder was listed.
        (folder / "part").symlink_to("moved")
    then = time.time() - hours * 3600
    for file in (*folder.iterdir(), folder):
        os.utime(file, (then, then), follow_symlinks=False)
    model_directory.remove_unfinished_saves(str(tmp_path), alone=False)
    assert folder.exists() == stays
    (said,) = harness.said(caplog)
    assert said.startswith("Another process may be writing " if stays else f"Removing {folder}, ")


@pytest.mark.slow
def test_training_removes_the_files_of_a_killed_save(tmp_path):
    program = """
        import sys
        import words_program
        estimator = words_program.make(sys.argv[1], rows=2_000_000)
        estimator.train(lambda params: words_program.input_fn(params).repeat())
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=processes.environment(), **silent)

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
