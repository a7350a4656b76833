"""Has a call end a second after its last step at most, where TensorFlow would wait for its input.

The end of a session waits for the op that a dataset runs ahead, and for tf.data's autotuning, up to
a minute. Ctrl-C does nothing meanwhile. So a thread ends the session. The process waits for that
thread, because a daemon thread that returns from C++ while Python ends aborts it. Ctrl-C ends both.
"""

import contextlib
import sys
import threading
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from estimator_emb.guards import stopping
from estimator_emb.guards.guard import Call, Guard

_PATIENCE = 1.0
"""Seconds."""


class PatientCloses(Guard):
    """Adds a hook that has a thread close the session."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session and not call.exporting

    def hooks(self, spec: Any) -> Iterable[Any]:
        yield _CloseHook()


class _CloseHook(tf.compat.v1.train.SessionRunHook):
    def after_create_session(self, session: Any, coord: Any) -> None:
        session.close = lambda: _close(session)


def _close(session: Any) -> None:
    session.__dict__.pop("close", None)  # What refers to itself would outlive the call.
    # A second signal ends it; while Python ends, it starts no thread.
    if stopping.requested() or sys.is_finalizing():
        session.close()
        return

    def close() -> None:
        with contextlib.suppress(Exception):  # As MonitoredSession does.
            session.close()

    thread = threading.Thread(target=close, name="close a session")
    thread.start()
    thread.join(_PATIENCE)
