"""Shows the progress of a call, and ends the call: by signals, at once, or when its input ends."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.guards import stopping
from estimator_emb.guards.call import Call, Runs
from estimator_emb.guards.checks import program_checks
from estimator_emb.reporting import console, progress
from estimator_emb.reporting.text_columns import counted

_PATIENCE = 1.0
"""Seconds of waiting that are not logged."""


@contextlib.contextmanager
def shown(call: Call) -> Iterator[list[Any]]:
    """Shows where a training is, by the hooks that it yields. An evaluation pauses its bar.

    For a plain Estimator, it also logs once per `model_dir` where it trains and how many variables.
    For a `TPUEstimator`, the backend does so.
    """
    if call.method == "evaluate":
        with progress.pausing():
            yield []
        return
    place = [_PlaceLog(call)] if call.method == "train" and call.runs is Runs.PLAIN else []
    # Host 0 shows the progress of all hosts. A cluster's workers show their own.
    if call.method != "train" or call.host:
        yield place
        return
    # Without a batch size, steps per second are shown.
    size = call.batch_size if program_checks.is_batch_size(call.batch_size) else None
    shows = progress.log_beside(call.hooks, call.steps, call.max_steps, size, call.model_dir)
    yield [*shows, *place]


@contextlib.contextmanager
def evaluating(call: Call) -> Iterator[tuple[progress.EvaluationLog, stopping.EndEvaluation]]:
    """Yields the hooks that log an evaluation's progress, and end it after a signal."""
    log = progress.EvaluationLog(call.steps)
    with progress.pausing(), stopping.evaluating():
        yield log, stopping.EndEvaluation()


def stoppable(call: Call) -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which SIGTERM, SIGHUP and Ctrl-C end the call.

    A training ends after its step and saves. The program's own handlers stay. The context yields
    hooks for the call's session, or None.
    """
    if call.method == "train":
        return stopping.at_end_of_step(call.model_dir, call.is_chief, alone=call.hosts == 1)
    return stopping.at_once()


class _PlaceLog(tf.compat.v1.train.SessionRunHook):
    def __init__(self, call: Call):
        self._call = call

    def begin(self) -> None:
        sizes = [variable.shape.num_elements() for variable in tf.compat.v1.trainable_variables()]
        counts = counted(len(sizes), "trainable variable")
        if None not in sizes:
            counts += f", {counted(sum(sizes), 'parameter')}"
        name, place = self._call.estimator.removesuffix("V2"), _place(self._call.config)
        console.say_once(f"{name} trains on {place}: {counts}.", self._call.model_dir)


def _place(config: Any) -> str:
    strategy = config.train_distribute
    if strategy is not None:
        replicas = counted(strategy.num_replicas_in_sync, "replica")
        return f"{replicas} of a {type(strategy).__name__}"
    place = "a GPU" if tf.config.list_physical_devices("GPU") else "the CPU"
    servers = config.num_ps_replicas
    return f"{place}, beside {counted(servers, 'parameter server')}" if servers else place


def closes(call: Call) -> list[Any]:
    """Returns the hook that logs why a call does not end after its last step.

    Closing a session waits for the op that a dataset runs ahead, and for tf.data's autotuning. This
    can take up to a minute. Python's handler of Ctrl-C cannot run meanwhile, because the call is in
    C++. The hook lets Ctrl-C end the process.
    """
    return [_CloseHook(call.method)] if call.in_session else []


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
            console.logger.info(
                "%s: its steps are done. It waits for TensorFlow to close its dataset, whose "
                "current op must end first%s.",
                self._method,
                ". Ctrl-C ends the process" if by_ctrl_c else "",
            )
