"""The folder of built libraries, shared by processes.

It is ESTIMATOR_EMB_CACHE, or else `estimator_emb` in XDG_CACHE_HOME or ~/.cache. A library ends
with a digest of its name and content, and is synced before it is renamed. So a file with a wrong
digest was damaged later, and is built again. Writers hold a lock, and remove the leftovers of
killed builds.

The digest does not protect against other users, who could add a library that runs as this user. So
the folder, its parents and its files must belong to this user or root, and must not be writable by
others. Then no other user can exchange a file between its check and its use.
"""

import contextlib
import errno
import hashlib
import os
import pathlib
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from typing import IO

from estimator_emb.catalog import environment
from estimator_emb.reporting.console import logger

try:
    import fcntl
    import pwd
except ImportError:  # Not on Windows.
    fcntl = pwd = None  # type: ignore[assignment]

SCRATCH = "estimator_emb-build-"
_SCRATCHES = f"{SCRATCH}*"
SEAL = b"\nestimator_emb library, sha256 "
_LENGTH = len(SEAL) + 64


class BuildError(Exception):
    """Raised if there is no library. The message gives the reason in one line."""


class UnsafeError(BuildError):
    """Raised if another user can write a file or folder of the cache."""


def directory() -> pathlib.Path:
    """Returns the folder of built libraries, without links in its path, or raises BuildError."""
    if fcntl is None:
        raise BuildError("this system lacks Python's fcntl, needed to lock the cache of kernels")
    own = environment.CACHE.value()
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        if own:
            folder = pathlib.Path(own).expanduser()
        elif base:
            folder = pathlib.Path(base, "estimator_emb")
        else:
            home = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
            folder = pathlib.Path(home, ".cache", "estimator_emb")
    except (KeyError, RuntimeError):
        raise BuildError(
            "there is no home directory to keep the kernels in; set ESTIMATOR_EMB_CACHE to a folder"
        ) from None
    return pathlib.Path(os.path.realpath(folder))


def check_folder(folder: pathlib.Path) -> None:
    """Creates the folder, a path without links. Raises UnsafeError if others can change it."""
    for part in (*reversed(folder.parents), folder):  # A safe folder protects its content.
        with contextlib.suppress(FileExistsError):  # Another process creates it too.
            if not os.path.lexists(part):
                part.mkdir(mode=0o700)
        status = os.lstat(part)
        # In a sticky folder such as /tmp, others can only replace their own files.
        sticky = part != folder and bool(status.st_mode & stat.S_ISVTX)
        if by_others := _by_others(status, sticky):
            own = status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX
            remedy = f"chmod go-w {part}, or " if own else ""
            raise UnsafeError(
                f"another user could put a library into the cache {folder}, because {part} "
                f"{by_others}; {remedy}set ESTIMATOR_EMB_CACHE to a folder that only you can write"
            )


def _by_others(status: os.stat_result, sticky: bool = False) -> str:
    """Returns how other users can change a file or folder, or '' if they cannot."""
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to user {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return ""


def read_safely(path: pathlib.Path) -> bytes:
    """Returns the content of a file. Raises UnsafeError if another user could have written it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if by_others := _by_others(status):
            raise UnsafeError(by_others)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def flaw(path: pathlib.Path, symbols: Sequence[str] = ()) -> str:
    """Returns why the library at `path` is unusable, or ''. It must define `symbols`."""
    try:
        content = read_safely(path)
    except UnsafeError as error:
        return str(error)
    except OSError:
        return "is damaged"
    if content[-_LENGTH:] != _seal(path.name, content[:-_LENGTH]):
        return "is damaged"
    # Not loaded to find out: a loaded library stays, and blocks its path for the next library.
    missing = [name for name in symbols if f"{name}\0".encode() not in content]
    return f"lacks the symbol {missing[0]}" if missing else ""


def put(library: pathlib.Path, path: pathlib.Path) -> None:
    """Seals a built library and moves it to `path`, so that a crash leaves all of it or nothing."""
    with open(library, "ab+") as file:
        file.seek(0)
        file.write(_seal(path.name, file.read()))
    put_as_it_is(library, path)


def put_as_it_is(made: pathlib.Path, path: pathlib.Path) -> None:
    """Moves a file to `path`. Others may not write it there, whatever the umask."""
    with open(made, "rb") as file:
        os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) & ~0o022)
        os.fsync(file.fileno())
    os.replace(made, path)
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
    """Locks the folder, and removes leftover files. Raises BuildError after `timeout` seconds."""
    with _lock_file(folder) as file:
        started, logged = time.monotonic(), False
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            waited = time.monotonic() - started
            if waited > 2 and not logged:
                logged = True
                logger.info("Waiting for another process that is building native kernels.")
            if waited > timeout:
                raise BuildError(
                    f"another process has held the lock {folder / 'lock'} for {timeout:.0f} s"
                )
            time.sleep(0.05)
        for left in list(folder.glob(_SCRATCHES)):
            shutil.rmtree(left, ignore_errors=True)
        yield


def clean(folder: pathlib.Path) -> None:
    """Removes the leftovers of killed builds, if it can and no build is in progress."""
    with contextlib.suppress(OSError, BuildError):
        if any(folder.glob(_SCRATCHES)):
            with locked(folder, timeout=-1.0):
                pass


def _lock_file(folder: pathlib.Path) -> IO[bytes]:
    """Opens the lock file. First removes a file that another user could have put there."""
    path = folder / "lock"
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or _by_others(status):
            os.unlink(path)
    return open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b")
