"""Logs why a call does not end after its last step: its dataset still runs an op.

Closing a session waits for the op that a dataset runs ahead, and for tf.data's autotuning. This can
take up to a minute. Python's handler of Ctrl-C cannot run meanwhile, because the call is in C++.
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
"""Seconds of waiting that are not logged."""


class PatientCloses(Guard):
    """Logs that a call waits for its dataset, and lets Ctrl-C end the process meanwhile."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session and not call.exporting

    def hooks(self, spec: Any) -> Iterable[Any]:
        yield _CloseHook(self.call.method)


class _CloseHook(tf.compat.v1.train.SessionRunHook):
    def __init__(self, method: str):
        self._method = method

    def after_create_session(self, session: Any, coord: Any) -> None:
        if not session.sess_str:  # A server's session may wait for other processes instead.
            session.close = lambda: self._close(session)

    def _close(self, session: Any) -> None:
        session.__dict__.pop("close", None)  # A reference cycle would outlive the call.
        with contextlib.ExitStack() as waiting:
            in_main_thread = threading.current_thread() is threading.main_thread()
            timer = threading.Timer(_PATIENCE, self._wait, [waiting, in_main_thread])
            timer.daemon = True
            # While Python ends, a thread cannot start: Python 3.12 raises, others would hang.
            if not sys.is_finalizing():
                with contextlib.suppress(RuntimeError):
                    timer.start()
            try:
                session.close()
            finally:
                timer.cancel()
                if timer.ident is not None:
                    timer.join()

    def _wait(self, waiting: contextlib.ExitStack, in_main_thread: bool) -> None:
        by_ctrl_c = in_main_thread and waiting.enter_context(stopping.at_system_defaults())
        with console.shown():
            console.logger.warning(
                "%s: its steps are done, but its dataset still reads. This call ends when the "
                "dataset's current op ends%s.",
                self._method,
                ", or with Ctrl-C" if by_ctrl_c else "",
            )
