"""Ends a call at most a second after its last step, instead of waiting for the input.

Closing a session can wait up to a minute, for the op that a dataset runs ahead and for tf.data's
autotuning. Ctrl-C has no effect meanwhile. So a thread closes the session. At exit, the process
waits for the thread and logs it: a daemon thread that then returns from C++ aborts the process.
Ctrl-C ends both.
"""

import contextlib
import sys
import threading
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from estimator_emb.guards import stopping
from estimator_emb.guards.guard import Call, Guard
from estimator_emb.reporting import console

_PATIENCE = 1.0
"""Seconds to wait for the thread that closes a session."""


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
    # A second signal ends it. While Python exits, threads cannot start.
    if stopping.requested() or sys.is_finalizing():
        session.close()
        return

    def close() -> None:
        with contextlib.suppress(Exception):  # As MonitoredSession does.
            session.close()

    thread = threading.Thread(target=close, name="close a session")
    thread.start()
    thread.join(_PATIENCE)
    if thread.is_alive():
        threading.Thread(target=_explain_wait, args=[thread], daemon=True).start()


def _explain_wait(closing: threading.Thread) -> None:
    while closing.is_alive() and threading.main_thread().is_alive():
        closing.join(_PATIENCE)
    if closing.is_alive():
        with console.shown():
            console.logger.warning(
                "The program is done, but its dataset still reads ahead. This process ends when "
                "the dataset's current op ends, or with Ctrl-C."
            )
