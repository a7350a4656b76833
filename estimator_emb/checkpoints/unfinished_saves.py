# SPDX-License-Identifier: Apache-2.0
"""Removes what killed saves have left behind in a model directory.

A checkpoint is written into a folder `model.ckpt-<step>_temp` and moved to its place at the end. A
process that is killed while it saves leaves behind that folder, which may be as large as the
checkpoint. The next training removes it, unless another process may be writing it.
"""

import contextlib
import logging
import os
import re
import time
from collections.abc import Iterator

import tensorflow as tf

try:
    import fcntl
except ImportError:  # Not on this system.
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("estimator_emb")

OLD_SECONDS = 3600
"""Age at which a folder counts as left behind where other machines may write, in seconds."""

_LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "tmpfs", "ramfs"}
"""Filesystems to which no other machine writes."""

_MOUNTS = "/proc/self/mountinfo"


@contextlib.contextmanager
def removed(model_dir: str) -> Iterator[None]:
    """Removes the folders of killed saves; only the process that saves enters this context.

    Inside, a lock on the directory tells other processes of this machine that this one may be
    saving. The lock ends with the process.

    On a filesystem of this machine, a folder is removed if no other training holds the lock and no
    other process writes a file in the model directory. Elsewhere, and where that fails, it is
    removed if nothing in it has changed for `OLD_SECONDS`.
    """
    with _locked(model_dir) as alone:
        for folder in _folders(model_dir):
            if (alone and not _written_by_others(model_dir)) or _is_old(folder):
                logger.info("Removing %s, which a killed save has left.", folder)
                with contextlib.suppress(tf.errors.OpError):
                    tf.io.gfile.rmtree(folder)
            else:
                logger.info("Another process may be writing %s: it stays.", folder)
        yield


def _folders(model_dir: str) -> list[str]:
    if not tf.io.gfile.isdir(model_dir):
        return []
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(model_dir))
    return [
        folder
        for name in sorted(names)
        if re.fullmatch(r"model\.ckpt-\d+_temp(_[0-9a-f]+)?", name)
        and tf.io.gfile.isdir(folder := os.path.join(model_dir, name))
    ]


@contextlib.contextmanager
def _locked(model_dir: str) -> Iterator[bool]:
    """Locks a directory; yields whether no other process of this machine has locked it.

    It yields False where that cannot be known.
    """
    descriptor = None
    if fcntl is not None and not _is_remote(model_dir):
        with contextlib.suppress(OSError):  # The first write there raises the error.
            os.makedirs(model_dir, exist_ok=True)
            descriptor = os.open(model_dir, os.O_RDONLY)
    if descriptor is None:
        yield False
        return
    try:
        alone = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            alone = False
        with contextlib.suppress(OSError):
            # If two trainings lock at the same moment, neither is alone.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield alone
    finally:
        os.close(descriptor)


def _is_remote(model_dir: str) -> bool:
    """Returns whether other machines may write to a directory."""
    if "://" in model_dir:
        return True
    place = os.path.realpath(model_dir)
    kinds: dict[str, str] = {}
    try:
        with open(_MOUNTS) as file:
            for line in file:
                before, after = line.split(" - ", 1)
                # The file has a space in the name of a folder as \040.
                mounted_at = re.sub(r"\\([0-7]{3})", _character, before.split()[4])
                kinds[mounted_at] = after.split()[0]
    except (OSError, ValueError, IndexError):
        return True
    while place not in kinds and place != "/":
        place = os.path.dirname(place)
    return kinds.get(place) not in _LOCAL


def _character(octal: re.Match[str]) -> str:
    return chr(int(octal[1], 8))


def _written_by_others(model_dir: str) -> bool:
    """Returns whether another process has a file of the directory open for writing.

    This finds trainings by other programs, which hold no lock, except those of other users, whose
    open files cannot be seen.
    """
    place = os.path.realpath(model_dir)
    for process in os.listdir("/proc"):
        if not process.isdigit() or int(process) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(f"/proc/{process}/fd"):
                file = os.readlink(f"/proc/{process}/fd/{descriptor}")
                if os.path.dirname(file) != place and not file.startswith(f"{place}/model.ckpt-"):
                    continue
                with open(f"/proc/{process}/fdinfo/{descriptor}") as info:
                    flags = re.search(r"^flags:\s*([0-7]+)$", info.read(), re.MULTILINE)
                if flags is None or int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY:
                    return True
    return False


def _is_old(folder: str) -> bool:
    """Returns whether nothing in a folder has changed for `OLD_SECONDS`."""
    try:
        names = [folder, *(f"{folder}/{name}" for name in tf.io.gfile.listdir(folder))]
        newest = max(tf.io.gfile.stat(name).mtime_nsec for name in names) / 1e9
    except tf.errors.OpError:
        return False
    return time.time() - newest > OLD_SECONDS
