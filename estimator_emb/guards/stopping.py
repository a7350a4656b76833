"""Makes SIGTERM, SIGHUP and Ctrl-C end a training after the current step, with a checkpoint.

This works while a training runs in the main thread, unless the program handles these signals
itself. The first signal ends the session after the current step, as if it were the last step, so
hooks save the model. `train` then raises KeyboardInterrupt after Ctrl-C, or SystemExit with status
143 after SIGTERM, 129 after SIGHUP. Before the first step it raises immediately. Another signal, at
least a second later, ends the process immediately. This works even if the process hangs in
TensorFlow, where Python's handlers would wait.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.files import checkpoint_files
from estimator_emb.reporting.console import logger

_DEFAULTS = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
if hasattr(signal, "SIGHUP"):  # Not on Windows.
    _DEFAULTS[signal.SIGHUP] = signal.SIG_DFL
"""Signal -> the default handler. Only default handlers are replaced, never the program's own."""

_SAME_SIGNAL_SECONDS = 1.0
"""A signal repeated within this time counts once, as `timeout` signals both process and group."""

_NO_MORE_SIGNALS = b"\0"
"""Byte that ends the thread that receives signals. Other bytes are signal numbers."""

_set_handler_in_c: Any = ctypes.pythonapi.PyOS_setsig
"""Sets a C handler (None for the default), and returns the handler before."""
_set_handler_in_c.argtypes = (ctypes.c_int, ctypes.c_void_p)
_set_handler_in_c.restype = ctypes.c_void_p

_training: "_Training | None" = None
"""The training that a signal would end."""


def requested() -> bool:
    """Returns whether a signal has asked the training in this thread to end."""
    return (
        _training is not None
        and _training.ends_by is not None
        and threading.current_thread() is threading.main_thread()
    )


def received() -> int:
    """Returns the number of the signal that this process received in its training, or 0."""
    return 0 if _training is None else int(_training.signal or 0)


def agree(number: int) -> None:
    """Ends the training of this process, one of several hosts, by a signal of any of them."""
    if _training is not None:
        _training.agreed = signal.Signals(number)


@contextlib.contextmanager
def at_end_of_step(model_dir: str, is_chief: bool, alone: bool) -> Iterator[list[Any]]:
    """Makes SIGTERM, SIGHUP and Ctrl-C end the training in this context after the current step.

    Yields the hooks that the training needs. Raises KeyboardInterrupt or SystemExit after a signal.
    `is_chief` tells whether this process saves the model. Unless this process trains `alone`, the
    training goes on until `agree` is called.
    """
    global _training
    training = _Training(model_dir, is_chief, alone)
    if _training is not None or not training.install():
        yield []
        return
    _training = training
    try:
        yield [training]
    except (KeyboardInterrupt, SystemExit):
        if training.ends_by is None:
            raise
    finally:
        _training = None
        training.uninstall()
    if training.ends_by is not None:
        training.explain()
        # TensorFlow's frames do not help: its session has ended normally.
        raise training.exception() from None


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Removes TensorFlow's frames from a KeyboardInterrupt in an evaluation or a prediction."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(*interrupt.args) from None


@contextlib.contextmanager
def evaluating() -> Iterator[None]:
    """Makes the log line about a signal mention the training's evaluation."""
    training = _training
    if training is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    training.evaluates = True
    try:
        yield
    finally:
        training.evaluates = training.signal is not None  # Its log line may come after this.


@contextlib.contextmanager
def at_system_defaults() -> Iterator[bool]:
    """Lets these signals end the process at once, also in C++, where Python's handlers wait.

    The program's own handlers stay. Yields whether Ctrl-C ends the process. Any thread may enter
    this context, because it changes the handlers in C alone.
    """
    ours = [signal.default_int_handler, *([] if _training is None else [_training.handle])]
    waits = [number for number in _DEFAULTS if signal.getsignal(number) in ours]
    before = {number: _set_handler_in_c(number, None) for number in waits}
    try:
        yield signal.SIGINT in before
    finally:
        for number, handler in before.items():
            _set_handler_in_c(number, handler)


class EndEvaluation(tf.compat.v1.train.SessionRunHook):
    """A hook that ends an evaluation inside a training after a signal. The model is saved."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if requested():
            assert _training is not None
            raise _training.exception()


class _Training(tf.compat.v1.train.SessionRunHook):
    def __init__(self, model_dir: str, is_chief: bool, alone: bool):
        self.signal: signal.Signals | None = None
        self.agreed: signal.Signals | None = None
        self._alone = alone
        self._model_dir = model_dir
        self._is_chief = is_chief
        self._received_at = 0.0
        self._handlers: dict[signal.Signals, Any] = {}
        self.reader: threading.Thread | None = None
        self._begun = False
        self.evaluates = False
        self._step: int | None = None

    def install(self) -> bool:
        if threading.current_thread() is not threading.main_thread():
            return False
        for number, default in _DEFAULTS.items():
            if signal.getsignal(number) == default:
                self._handlers[number] = signal.signal(number, self.handle)
        if self._handlers:
            self._watch()
        return bool(self._handlers)

    def uninstall(self) -> None:
        """Restores the handlers and waits until the thread has logged the signals received."""
        self.restore_handlers()
        if self.reader is not None:
            # A byte, not end of file: a process forked by C code may hold the pipe open.
            os.write(self._pipe[1], _NO_MORE_SIGNALS)
            self.reader.join()
            for end in self._pipe:
                os.close(end)

    def restore_handlers(self) -> None:
        for number, handler in self._handlers.items():
            if signal.getsignal(number) == self.handle:
                signal.signal(number, handler)
        if self.reader is not None:
            signal.set_wakeup_fd(-1)

    def before_run(self, run_context: Any) -> None:
        self._begun = True

    @property
    def ends_by(self) -> signal.Signals | None:
        """The signal that ends the training; before the first step, none is agreed on."""
        return self.signal if self._alone or not self._begun else self.agreed

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self.ends_by is not None:
            run_context.request_stop()

    def end(self, session: Any) -> None:
        if self.ends_by is not None:
            self._step = int(session.run(tf.compat.v1.train.get_global_step()))

    def exception(self) -> BaseException:
        assert self.ends_by is not None
        if self.ends_by == signal.SIGINT:
            return KeyboardInterrupt()
        return SystemExit(128 + self.ends_by)

    def explain(self) -> None:
        assert self.ends_by is not None
        name = self.ends_by.name
        if not self._begun:
            logger.warning("%s ended the training before its first step.", name)
            return
        at = "" if self._step is None else f" at step {self._step}"
        logger.warning("%s ended the training%s. %s", name, at, self._where_saved())

    def _where_saved(self) -> str:
        if not self._is_chief:
            return "The chief saves the model."
        try:
            saved = checkpoint_files.latest(self._model_dir)
        except Exception as error:  # The program ends anyway.
            return str(error)
        if saved is None or (self._step is not None and not saved.endswith(f"-{self._step}")):
            return "It saves no checkpoints, so that its steps are lost."
        return f"The model is saved in {saved}: run the program again to go on from there."

    def _watch(self) -> None:
        """Starts a thread that receives signals even while the main thread is in TensorFlow."""
        if os.name != "posix":
            return
        reading, writing = self._pipe = os.pipe()
        os.set_blocking(writing, False)
        others = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if others != -1:
            # The program's event loop uses the wakeup file descriptor.
            signal.set_wakeup_fd(others)
            os.close(writing)
            os.close(reading)
            return
        self.reader = threading.Thread(target=self._read, args=[reading], daemon=True)
        self.reader.start()

    def _read(self, reading: int) -> None:
        while (byte := os.read(reading, 1)) != _NO_MORE_SIGNALS:
            if byte[0] in self._handlers:
                self._receive(signal.Signals(byte[0]))

    def handle(self, number: int, frame: Any) -> None:
        if self.reader is None:
            self._receive(signal.Signals(number))
        elif self.signal is None:
            self.signal = signal.Signals(number)  # The thread has not run yet.
        if not self._begun:
            raise self.exception()

    def _receive(self, number: signal.Signals) -> None:
        now = time.monotonic()
        if not self._received_at:
            self._received_at = now
            self.signal = number
            if self._begun:
                what = "this evaluation ends, and training" if self.evaluates else "training"
                when = "without another step" if self.evaluates else "with this step"
                logger.warning(
                    "%s: %s ends %s. Another signal ends it at once.", number.name, what, when
                )
                # Again, because a busy machine may take more than a second to log the line.
                self._received_at = time.monotonic()
        elif now - self._received_at > _SAME_SIGNAL_SECONDS:
            with contextlib.suppress(OSError):  # After SIGHUP the terminal is gone.
                print(f"estimator_emb: {number.name} again: ended at once.", file=sys.stderr)
                sys.stderr.flush()
            os._exit(128 + number)


def _in_forked_process() -> None:
    """Restores the handlers in a forked process, because pools end processes by SIGTERM."""
    global _training
    if _training is not None:
        _training.restore_handlers()
        _training.reader = None  # The thread and its pipe belong to the parent process.
        _training = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_process)
