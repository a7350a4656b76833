"""Keeps a second training out of a model directory, because two trainings would lose steps.

The process that saves holds the kernel's lock on a hidden file of the directory. The file names the
process. The lock ends with the process, so a killed process does not block later trainings. Threads
and estimators of the same process have separate descriptors, so they lock each other out too.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator

from estimator_emb.reporting import console
from estimator_emb.reporting.text_columns import escaped

try:
    import fcntl
except ImportError:  # This system does not have it.
    fcntl = None  # type: ignore[assignment]

FILE = ".estimator_emb.lock"
_SHOWN = 200
"""The most characters of a lock file that a message shows. Anyone may have written the file."""

_descriptors: set[int] = set()
"""Descriptors of the lock files that this process holds open."""


@contextlib.contextmanager
def held(model_dir: str) -> Iterator[Callable[[], None] | None]:
    """Holds the lock of an existing folder. Raises RuntimeError if another training holds it.

    Yields a check, or None if the directory cannot be locked. The check raises RuntimeError if the
    lock's file has been removed or replaced, because another training may then save there.
    """
    folder = model_dir.removeprefix("file://")
    path = os.path.join(os.path.abspath(folder), FILE)
    descriptor, why_not = None, "its file system has no locks"
    if fcntl is not None and "://" not in folder:
        try:
            descriptor = _locked(path)
        except BlockingIOError as error:
            raise RuntimeError(
                f"train: model_dir '{model_dir}' is held by {error.strerror}, which trains there. "
                "Each would overwrite the checkpoints of the other, and steps would be lost.\n"
                "What to do: wait until it has ended, or end it; or give another model_dir."
            ) from None
        except OSError as error:
            why_not = str(error)
    if descriptor is None:
        console.say_once(
            f"model_dir '{model_dir}' cannot be locked ({why_not}): do not train there twice at "
            "once.",
            model_dir,
        )
    try:
        yield None if descriptor is None else lambda: _check(model_dir, path, descriptor)
    finally:
        if descriptor in _descriptors:  # A process that was forked inside has closed it.
            with contextlib.suppress(OSError):
                if _is_at(path, descriptor):
                    os.unlink(path)
            _close(descriptor)


def _locked(path: str) -> int:
    """Returns a locked descriptor, or raises BlockingIOError with the holder as its `strerror`."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        _descriptors.add(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, descriptor):
                os.truncate(descriptor, 0)
                os.write(descriptor, f"{_this()}, since {time.ctime()}".encode())
                return descriptor
        except OSError as error:
            if isinstance(error, BlockingIOError):
                who = os.pread(descriptor, 1000, 0).decode(errors="replace") or "another process"
                who = escaped(who[:_SHOWN]) + "..." * (len(who) > _SHOWN)
                error.strerror = who.replace(_this(), f"this process ({os.getpid()})")
            _close(descriptor)
            raise
        _close(descriptor)  # The holder has removed the file meanwhile.


def _this() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _check(model_dir: str, path: str, descriptor: int) -> None:
    try:
        kept = os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        kept = False
    except OSError:
        return  # Without an answer from the file system, the file's state is unknown.
    if not kept:
        raise RuntimeError(
            f"train: the lock '{path}' of this training was removed or replaced, so that another "
            f"training may save in model_dir '{model_dir}'. This one ends and does not save: the "
            "steps since its last checkpoint are lost.\n"
            "What to do: see that nothing else trains there, and run the program again. Leave the "
            "file alone: the lock of a process that has ended keeps nobody out."
        )


def _is_at(path: str, descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False


def _close(descriptor: int) -> None:
    _descriptors.discard(descriptor)
    os.close(descriptor)


def _in_forked_process() -> None:
    """Closes the lock files, because a forked process would hold them after the training."""
    while _descriptors:
        os.close(_descriptors.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_process)
