"""Ends a call at most a second after its last step, instead of waiting for the input.

Closing a session can wait up to a minute, for the op that a dataset runs ahead and for tf.data's
autotuning. Ctrl-C has no effect meanwhile. So a thread closes the session.

If the thread still waits at exit, Python cannot end: a thread that returns from C++ meanwhile, or
runs the dataset's Python code, aborts the process. `os._exit` needs the exit status, which is only
known when Python has ended. So the process forks a copy, which has no other threads. Python ends in
the copy, and the process takes over the exit status.
"""

import atexit
import contextlib
import ctypes
import gc
import io
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from estimator_emb.guards import stopping
from estimator_emb.guards.guard import Call, Guard
from estimator_emb.reporting import console

_PATIENCE = 1.0
"""Seconds to wait for the thread that closes a session."""

_COPY_SECONDS = 30.0
"""Seconds to wait for the copy. It takes about one, unless a thread held a lock at the fork."""

_REGISTER = "__register_atfork"
"""What pthread_atfork calls in the C library of Linux."""

_CAN_COPY = hasattr(ctypes.pythonapi, _REGISTER) and sys.version_info < (3, 14)
"""False where the C library is another, and from Python 3.14 on, where nobody has tried it."""

_THREAD = "close a session"


class PatientCloses(Guard):
    """Adds a hook that lets a thread close the session."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session and not call.exporting

    def hooks(self, spec: Any) -> Iterable[Any]:
        yield _CloseHook()


class _CloseHook(tf.compat.v1.train.SessionRunHook):
    def after_create_session(self, session: Any, coord: Any) -> None:
        session.close = lambda: _close(session)


def _close(session: Any) -> None:
    session.__dict__.pop("close", None)  # A reference cycle would outlive the call.
    # A second signal ends the process. While Python exits, threads cannot start.
    if stopping.requested() or sys.is_finalizing():
        session.close()
        return

    def close() -> None:
        with contextlib.suppress(Exception):  # As MonitoredSession does.
            session.close()

    thread = threading.Thread(target=close, name=_THREAD, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    if thread.is_alive():
        try:
            # Python calls this when it begins to end. `_end` is then the last to be registered, so
            # it is the first exit function to run.
            threading._register_atexit(atexit.register, _end)  # type: ignore[attr-defined]
        except RuntimeError:  # Python ends already.
            if threading.current_thread() is threading.main_thread():  # In an exit function.
                thread.join()
            else:
                atexit.register(_end)


def _end() -> None:
    """Ends the process by a copy if a session is still being closed, or waits for the session."""
    closing = [thread for thread in threading.enumerate() if thread.name == _THREAD]
    if not closing:
        return
    if _CAN_COPY:
        # Other exit functions would run in the copy, without the threads that they need.
        atexit.unregister(_end)
        atexit._run_exitfuncs()
        _flush_files()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's handler cannot end these waits.
    if _CAN_COPY and _ends_in_copy():
        return
    with console.shown():
        console.logger.warning(
            "The program is done, but its dataset still reads ahead. This process ends when "
            "the dataset's current op ends, or with Ctrl-C."
        )
    for thread in closing:
        thread.join()


def _ends_in_copy() -> bool:
    """Forks a copy, and ends this process with the copy's exit status.

    Returns True in the copy. Returns False in this process if there is no copy that ends in time.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # The program's handler could take the status.
    copy = _fork()
    if copy < 0:
        return False
    if not copy:
        # Keeps all objects: C++ destructors would wait for threads that the copy lacks.
        kept = gc.get_objects()
        kept += gc.get_referents(*kept)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
        return True
    deadline = time.monotonic() + _COPY_SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(copy, os.WNOHANG)
        if ended:
            _end_with(os.waitstatus_to_exitcode(status))
        time.sleep(0.01)
    os.kill(copy, signal.SIGKILL)
    os.waitpid(copy, 0)
    return False


def _fork() -> int:
    """Copies the process as os.fork does, which raises an error at exit on Python 3.12."""
    python = ctypes.pythonapi
    # These must run within the fork: a copy that runs other Python code first may wait for ever
    # for the threads that it lacks.
    at_fork = (python.PyOS_BeforeFork, python.PyOS_AfterFork_Parent, python.PyOS_AfterFork_Child)
    getattr(python, _REGISTER)(*at_fork, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jax warns of locks. See _COPY_SECONDS.
        number: int = python.fork()
    return number


def _flush_files() -> None:
    """Writes the buffers of all open files, because no destructor writes them."""
    for one in gc.get_objects():
        if issubclass(type(one), io.IOBase):
            with contextlib.suppress(Exception):  # Such as a closed file.
                one.flush()


def _end_with(status: int) -> None:
    """Ends this process with an exit status, or by a signal if the status is negative."""
    if status < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler.
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
