"""The cache of built libraries and compiled programs, shared by a user's processes.

It is ESTIMATOR_EMB_CACHE, or else `estimator_emb` in XDG_CACHE_HOME or ~/.cache. The code in it
runs with this user's rights. So libraries and programs each have a folder that is open to this
user only.

A library ends with a digest of its name and content, and is synced before it is renamed. So a file
with a wrong digest was damaged later, and is built again. Writers hold a lock, and remove the
leftovers of killed builds.
"""

import contextlib
import hashlib
import os
import pathlib
import shutil
import stat
import time
from collections.abc import Collection, Iterator, Sequence

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
    """Raised if another user could change the cache, or has changed it."""


def directory() -> pathlib.Path:
    """Returns the folder of the cache, without links in its path, or raises BuildError."""
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


def private(name: str) -> pathlib.Path:
    """Returns the folder `name` in the cache. Creates it, and folders above it, for this user only.

    Raises UnsafeError if others could replace the folder, or if anything in it is not this user's.
    """
    folder, user = directory() / name, os.geteuid()
    for above in reversed(folder.parents):
        _create(above)
        # In a sticky folder such as /tmp, others can only replace their own files.
        sticky = above.lstat().st_mode & stat.S_ISVTX
        _check(above, (0, user), 0 if sticky else 0o022)
    _create(folder)
    _check(folder, (user,), 0o077)
    for place, folders, files in os.walk(folder):
        for entry in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):  # Another process has removed it.
                _check(pathlib.Path(place, entry), (user,))
    return folder


def _create(folder: pathlib.Path) -> None:
    with contextlib.suppress(FileExistsError):  # Another process creates it too.
        if not os.path.lexists(folder):
            folder.mkdir(mode=0o700)


def _check(path: pathlib.Path, owners: Collection[int], closed: int = 0) -> None:
    """Raises UnsafeError for a link, other owners, or a mode with any of the bits `closed`."""
    status = path.lstat()
    mode = stat.S_IMODE(status.st_mode)
    how = remedy = ""
    if stat.S_ISLNK(status.st_mode):
        how = "is a link"
    elif status.st_uid not in owners:
        how = f"belongs to user {status.st_uid}"
    elif mode & closed:
        how = f"has mode {mode:04o}"
        if status.st_uid == os.geteuid():
            remedy = f"chmod {mode & ~closed:04o} {path}, or "
    if how:
        raise UnsafeError(
            f"another user could put code into the cache, because {path} {how}; {remedy}set "
            "ESTIMATOR_EMB_CACHE to a folder that only you can write"
        )


def flaw(path: pathlib.Path, symbols: Sequence[str] = ()) -> str:
    """Returns why the library at `path` is unusable, or ''. It must define `symbols`."""
    if not path.is_file():  # Reading a pipe would never end.
        return "is damaged"
    try:
        content = path.read_bytes()
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
    """Locks the folder, and removes leftover files. Raises BuildError after `timeout` seconds."""
    with open(folder / "lock", "ab") as file:
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
