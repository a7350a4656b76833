"""Shows the log during calls of this package if the program sets up no logging.

In such a program, an estimator's calls write INFO lines of the logger "estimator_emb" to stderr.
TensorFlow's logger then leaves out deprecation warnings about tensorflow-estimator, and about calls
inside libraries. In an absl program without a level it also leaves out tensorflow-estimator's
reports about itself. Warnings about lines of the program itself stay.

In notebooks and other interactive interpreters, TensorFlow itself sets its logger to INFO. This
does not count as the program's choice, and the log goes to stdout, as TensorFlow's lines do.

A program sets up logging if it gives the root logger, absl or the logger "estimator_emb" a level or
a handler. A handler that a library adds by logging does not count. Then the program's choice
stands, and all lines stay. After a call all loggers are as before.
"""

import contextlib
import linecache
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
import tqdm
from absl import flags
from absl import logging as absl_logging

from estimator_emb.reporting import frames

logger = logging.getLogger("estimator_emb")
_logged: set[tuple[str, str]] = set()
_counting: weakref.WeakSet[tf.Graph] = weakref.WeakSet()
_lock = threading.Lock()
_calls = 0
_undo = contextlib.ExitStack()


_TOLD = "_estimator_emb_told"
_ADVICE_TO_LEAVE = (
    "Use tf.keras instead.",
    "Use Keras preprocessing layers instead",
    "The old _FeatureColumn APIs are being deprecated.",
    "Use `tf.keras.layers.experimental.preprocessing.HashedCrossing` instead",
    "tf.compat.v1.estimator.",  # The program writes this name already: TensorFlow 2 has no other.
)
"""Start of the advice in deprecation warnings about estimators and about columns."""


class _OurLevel(int):
    """A level of our logger that the program did not set."""


_LEVEL = _OurLevel(logging.INFO)


def say_once(text: str, model_dir: Any = None, level: int = logging.INFO) -> None:
    """Logs a text once for each model directory, or once for the process without a directory."""
    if (text, str(model_dir)) not in _logged:
        _logged.add((text, str(model_dir)))
        logger.log(level, text, stacklevel=2)


def silence() -> None:
    """Logs only errors from now on, because another process logs. A level of the program stays."""
    if not logger.level or logger.level is _LEVEL:
        logger.setLevel(logging.ERROR)


def tell_elsewhere(error: BaseException) -> None:
    """Marks an error that another process shows."""
    setattr(error, _TOLD, True)


def is_told_elsewhere(error: BaseException) -> bool:
    """Returns whether another process shows this error."""
    return hasattr(error, _TOLD)


def shows_estimators() -> bool:
    """Returns whether INFO lines of tensorflow-estimator are shown now."""
    tensorflow = tf.get_logger()
    line = tensorflow.makeRecord(tensorflow.name, logging.INFO, tf.__file__, 0, "", (), None)
    return tensorflow.isEnabledFor(logging.INFO) and bool(tensorflow.filter(line))


def without_advice_to_leave(undo: contextlib.ExitStack) -> None:
    """Hides TensorFlow's warnings that `tf.estimator` and its columns are deprecated."""
    _add_filter(tf.get_logger(), _is_no_advice_to_leave, undo)


def _is_no_advice_to_leave(record: logging.LogRecord) -> bool:
    notice = _notice(record)
    return notice is None or not str(notice[-1]).startswith(_ADVICE_TO_LEAVE)


def counts_steps(graph: tf.Graph) -> None:
    """Silences TensorFlow's warning about the global step: it is wrong, or was given already."""
    _counting.add(graph)


def interactive() -> bool:
    """Returns whether a person types the program, in a notebook or at Python's prompt."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def stream() -> Any:
    """Returns the stream for text to the person who runs the program."""
    return sys.stdout if interactive() else sys.stderr


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Shows the log inside. May be nested, and used by several threads."""
    global _calls
    with _lock:
        if not _calls:
            try:
                _set_up()
            except BaseException:
                _undo.close()
                raise
        _calls += 1
    try:
        yield
    finally:
        with _lock:
            _calls -= 1
            if not _calls:
                _undo.close()


def _set_up() -> None:
    tensorflow = tf.get_logger()
    _add_filter(tensorflow, _concerns_program)
    if _is_set_up() or logger.handlers or logger.level:
        return
    for handler in tensorflow.handlers:
        _add_filter(handler, _not_by_root(handler))
    console = _Console()
    for handler in console.replaced:
        _add_filter(handler, lambda record: record.name != logger.name)
    logger.addHandler(console)
    _undo.callback(logger.removeHandler, console)
    logger.setLevel(_LEVEL)
    _undo.callback(_reset_level)
    _add_filter(logger, _is_wanted)


def _add_filter(owner: logging.Filterer, wanted: Any, undo: contextlib.ExitStack = _undo) -> None:
    owner.addFilter(wanted)
    undo.callback(owner.removeFilter, wanted)


def _reset_level() -> None:
    if logger.level is _LEVEL:  # Otherwise the program has set it since.
        logger.setLevel(logging.NOTSET)


def _is_set_up() -> bool:
    if logging.root.handlers == [absl_logging.get_absl_handler()]:
        verbosity = flags.FLAGS["verbosity"]
        return bool(verbosity.present) or verbosity.value != absl_logging.INFO
    if logging.root.level == logging.WARNING and all(map(_is_implicit, logging.root.handlers)):
        return False
    return bool(logging.root.handlers) or logging.root.level != logging.WARNING


def _is_implicit(handler: logging.Handler) -> bool:
    """Returns whether a root handler looks like the one that a library's log call adds.

    `logging.warning` and `absl.logging.warning` call `logging.basicConfig()`, so a call such as
    `tf.train.Checkpoint.save` adds this handler. The program's own `basicConfig()` makes the same
    handler, which counts if the main file names this function.
    """
    is_default = (
        type(handler) is logging.StreamHandler
        and handler.level == logging.NOTSET
        and handler.stream is sys.stderr
        and type(handler.formatter) is logging.Formatter
        and handler.formatter._fmt == logging.BASIC_FORMAT
    )
    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    return is_default and not any("basicConfig" in line for line in linecache.getlines(main))


def _is_wanted(record: logging.LogRecord) -> bool:
    """Returns whether to show our record, even if the program has set up logging meanwhile."""
    if logger.level is not _LEVEL:
        return True
    if _is_set_up():
        return record.levelno >= logging.root.level
    # A program that silences TensorFlow's INFO means this package's too.
    return record.levelno > logging.INFO or tf.get_logger().level <= logging.INFO


def _is_level_chosen() -> bool:
    """Returns whether the program has set the level of TensorFlow's logger."""
    level = tf.get_logger().level
    return bool(level) and not (interactive() and level == logging.INFO)


class _Console(logging.StreamHandler):
    """Writes records that no handler of the program takes, above any progress bar."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.replaced = list(filter(_is_implicit, logging.root.handlers))
        """Root handlers that a library's log call has added."""
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    @property
    def stream(self) -> Any:  # type: ignore[override]
        return stream()

    def emit(self, record: logging.LogRecord) -> None:
        with tqdm.tqdm.external_write_mode(self.stream):
            super().emit(record)

    def filter(self, record: logging.LogRecord) -> Any:
        others = set(logging.root.handlers).difference(self.replaced)
        taken = logger.handlers != [self] or (logger.propagate and others)
        return False if taken else super().filter(record)


def _not_by_root(handler: logging.Handler) -> Callable[[logging.LogRecord], bool]:
    """Returns a filter that drops records that a root handler writes to the same stream."""
    own = _stream(handler)
    return lambda record: (
        not tf.get_logger().propagate
        or all(
            _stream(other) is not own or record.levelno < other.level
            for other in logging.root.handlers
        )
    )


def _stream(handler: Any) -> Any:
    if isinstance(handler, absl_logging.ABSLHandler):
        handler = handler.python_handler
    return getattr(handler, "stream", handler)


def _concerns_program(record: logging.LogRecord) -> bool:
    """Returns whether a record of TensorFlow's logger concerns the author of the program."""
    message = str(record.msg)
    if message.startswith("It seems that global step (tf.train.get_global_step) has not"):
        return tf.compat.v1.get_default_graph() not in _counting
    if _is_set_up():
        return True
    if message == "Reraising captured error":
        return False  # A TPU estimator logs this before it raises the error.
    if record.levelno < logging.WARNING:
        return _is_level_chosen() or frames.is_of_program(record.pathname)
    notice = _notice(record)
    if notice is None:
        return True
    # Every name of tensorflow-estimator gives this advice, even to libraries.
    if notice[-1] == _ADVICE_TO_LEAVE[0]:
        return False
    return frames.is_of_program(str(notice[0]).rpartition(":")[0])


def _notice(record: logging.LogRecord) -> tuple[Any, ...] | None:
    """Returns the arguments of a deprecation warning: first the place, last the advice."""
    is_one = str(record.msg).startswith("From %s: ") and isinstance(record.args, tuple)
    return record.args if is_one else None  # type: ignore[return-value]
