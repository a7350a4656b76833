# SPDX-License-Identifier: Apache-2.0
"""Shows the log of a program that sets up no logging of its own, and shows nothing twice.

In such a program, lines of level INFO of the logger "estimator_emb" reach stderr: what trains
where, and how far it is. Whatever the program sets up takes precedence: levels and handlers of the
root logger, of the logger "estimator_emb" and of TensorFlow's, and absl's flags.

Some records of TensorFlow's logger say nothing to the author of a program, and are left out: that
tensorflow-estimator is deprecated; that TensorFlow, tensorflow-estimator or this package calls
something deprecated; and, in an absl program that asks for no level, what tensorflow-estimator
reports of itself. Records about lines of the program itself stay, and so do all other warnings.
"""

import logging
import sys
import weakref
from typing import Any, TextIO

import tensorflow as tf
from absl import app, flags
from absl import logging as absl_logging

from estimator_emb.messages import failures

_ADVICE_TO_LEAVE = "Use tf.keras instead."
"""The end of the deprecation notice on every name of tensorflow-estimator, whoever uses it."""

logger = logging.getLogger("estimator_emb")
_logged: set[tuple[str, str]] = set()
_counting: weakref.WeakSet[tf.Graph] = weakref.WeakSet()


def install() -> None:
    """Sets up the loggers "estimator_emb" and "tensorflow". A second call changes nothing."""
    if isinstance(logger, _Logger):
        return
    logger.__class__ = _Logger
    logger.addHandler(_Console())
    if not logging.root.handlers and logging.root.level == logging.WARNING:
        logging.root.setLevel(_Unchosen(logging.WARNING))
    # absl sets a level in every program that it runs.
    app.call_after_init(_after_absl)
    tensorflow = tf.get_logger()
    tensorflow.addFilter(_concerns_program)
    for handler in tensorflow.handlers:
        handler.addFilter(_NotByRoot(tensorflow, handler))


def say_once(text: str, model_dir: Any = None, level: int = logging.INFO) -> None:
    """Logs a text once for each model directory, or process, although each training would."""
    if (text, str(model_dir)) not in _logged:
        _logged.add((text, str(model_dir)))
        logger.log(level, text, stacklevel=2)


def counts_steps(graph: tf.Graph) -> None:
    """Notes that steps of a graph can increase its global step, so that no warning doubts it.

    TensorFlow warns by mistake if two session calls happen to read the same step, one of them after
    its increment and the next before.
    """
    _counting.add(graph)


class _Unchosen(int):
    """A level of the root logger that the program has not chosen."""


def _after_absl() -> None:
    if absl_logging.get_absl_handler() not in logging.root.handlers:
        return
    if not flags.FLAGS["verbosity"].present:
        logging.root.setLevel(_Unchosen(logging.root.level))


class _Logger(logging.Logger):
    """The class of the logger "estimator_emb", of level INFO unless the program chooses another."""

    def getEffectiveLevel(self) -> int:  # noqa: N802
        if self.level:
            return self.level
        if not isinstance(logging.root.level, _Unchosen):
            return logging.root.level
        # A program that silences TensorFlow's INFO means this package's too.
        quiet = tf.get_logger().level > logging.INFO
        return logging.WARNING if quiet else logging.INFO

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802
        # Python's own method caches its answer until some logger's setLevel is called, and would
        # not notice a new handler of the root logger.
        return (
            not self.disabled and self.manager.disable < level and level >= self.getEffectiveLevel()
        )


class _Console(logging.StreamHandler):
    """A handler that writes to stderr the records that no handler of the program gets."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr

    def filter(self, record: logging.LogRecord) -> Any:
        taken = logger.handlers != [self] or (logger.propagate and bool(logging.root.handlers))
        return False if taken else super().filter(record)


class _NotByRoot(logging.Filter):
    """A filter that keeps a handler from writing what root handlers write to the same stream."""

    def __init__(self, owner: logging.Logger, handler: logging.Handler):
        super().__init__()
        self._owner = owner
        self._handler = handler

    def filter(self, record: logging.LogRecord) -> bool:
        stream = _stream(self._handler)
        return stream is None or not (
            self._owner.propagate
            and any(
                _stream(other) is stream and record.levelno >= other.level
                for other in logging.root.handlers
            )
        )


def _stream(handler: logging.Handler) -> Any:
    """Returns the stream to which a handler writes; None if it writes to none."""
    if isinstance(handler, absl_logging.ABSLHandler):
        handler = handler.python_handler
    return getattr(handler, "stream", None)


def _concerns_program(record: logging.LogRecord) -> bool:
    """Returns whether a record of TensorFlow's logger is for the author of the program."""
    if record.levelno < logging.WARNING:
        asked = tf.get_logger().level or not isinstance(logging.root.level, _Unchosen)
        return bool(asked) or failures.is_of_program(record.pathname)
    if str(record.msg).startswith("It seems that global step (tf.train.get_global_step) has not"):
        return tf.compat.v1.get_default_graph() not in _counting
    # TensorFlow begins a deprecation notice with the file and line of the caller.
    if not (isinstance(record.args, tuple) and str(record.msg).startswith("From %s: ")):
        return True
    if record.args[-1] == _ADVICE_TO_LEAVE:
        return False
    return failures.is_of_program(str(record.args[0]).rpartition(":")[0])
