# SPDX-License-Identifier: Apache-2.0
"""The folder of built libraries, which processes share and which may be damaged at any time.

A library ends with a digest of its name and content. It is written, synced and only then renamed,
so that a file without the right digest must have been damaged later, and is built again. A process
that writes holds the lock. What a killed build leaves behind, the next process with the lock
removes.
"""

import contextlib
import hashlib
import logging
import os
import pathlib
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator

try:
    import fcntl
    import pwd
except ImportError:  # Not on Windows.
    fcntl = pwd = None  # type: ignore[assignment]

logger = logging.getLogger("estimator_emb")

SCRATCH = "estimator_emb-build-"
SEAL = b"\nestimator_emb library, sha256 "
_EARLIER_SCRATCH = re.compile(r"tmp[a-z0-9_]{8}")
_OF_BUILD = re.compile(r"\d+\.(cc|o)|library\.so")
_LENGTH = len(SEAL) + 64


class BuildError(Exception):
    """The error if there is no library; its message says why, in one line."""


def directory() -> pathlib.Path:
    """Returns the folder in which built libraries are kept.

    Raises:
      BuildError: this system cannot lock a file, or there is no home directory and the environment
        names no other folder.
    """
    if fcntl is None:
        raise BuildError("this system lacks Python's fcntl, which keeps two builds apart")
    own = os.environ.get("ESTIMATOR_EMB_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        if own:
            return pathlib.Path(own).expanduser().absolute()
        if base:
            return pathlib.Path(base).absolute() / "estimator_emb"
        home = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    except (KeyError, RuntimeError):
        raise BuildError(
            "there is no home directory to keep them in; ESTIMATOR_EMB_CACHE names another"
        ) from None
    return pathlib.Path(home).absolute() / ".cache" / "estimator_emb"


def is_whole(path: pathlib.Path) -> bool:
    """Returns whether the file at `path` is a library, unchanged since it was put there."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        content = path.read_bytes()
    except OSError:
        return False
    return content[-_LENGTH:] == _seal(path.name, content[:-_LENGTH])


def put(library: pathlib.Path, path: pathlib.Path) -> None:
    """Seals a built library and moves it to `path`: after a crash, it is there whole or not."""
    with open(library, "r+b") as file:
        seal = _seal(path.name, file.read())
        file.write(seal)
        file.flush()
        os.fsync(file.fileno())
    os.replace(library, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _seal(name: str, content: bytes) -> bytes:
    digest = hashlib.sha256(name.encode() + b"\0" + content).hexdigest()
    return SEAL + digest.encode()


@contextlib.contextmanager
def locked(folder: pathlib.Path, timeout: float) -> Iterator[None]:
    """Locks the folder against other builds, and removes what killed ones have left behind.

    Raises:
      BuildError: another process has held the lock for more than `timeout` seconds.
    """
    with open(folder / "lock", "w") as file:
        started, logged = time.monotonic(), False
        while not _try_lock(file.fileno()):
            waited = time.monotonic() - started
            if waited > timeout:
                raise BuildError(
                    f"another process has held the lock {folder / 'lock'} for {timeout:.0f} s"
                )
            if waited > 2 and not logged:
                logged = True
                logger.info("Waiting for another process, which builds native kernels.")
            time.sleep(0.05)
        _clean(folder)
        yield


def clean(folder: pathlib.Path) -> None:
    """Removes what killed builds have left behind, if no build is under way and it can."""
    with contextlib.suppress(OSError):
        if _left_behind(folder):
            with open(folder / "lock", "w") as file:
                if _try_lock(file.fileno()):
                    _clean(folder)


@contextlib.contextmanager
def scratch(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Creates a folder for one build, which is removed at the end; the lock must be held."""
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder) as folder_name:
        yield pathlib.Path(folder_name)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _clean(folder: pathlib.Path) -> None:
    for left in _left_behind(folder):
        shutil.rmtree(left, ignore_errors=True)


def _left_behind(folder: pathlib.Path) -> list[pathlib.Path]:
    return [
        entry
        for entry in folder.iterdir()
        if entry.name.startswith(SCRATCH) or _is_of_earlier_version(entry)
    ]


def _is_of_earlier_version(path: pathlib.Path) -> bool:
    # The cache may be a folder in which other programs create temporary folders too.
    if not _EARLIER_SCRATCH.fullmatch(path.name):
        return False
    try:
        names = [entry.name for entry in path.iterdir()]
    except OSError:
        return False
    return bool(names) and all(_OF_BUILD.fullmatch(name) for name in names)
