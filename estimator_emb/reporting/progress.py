"""Shows the progress of a training in a bar or in the log."""

import contextlib
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from estimator_emb.reporting import bars, console
from estimator_emb.reporting.console import logger
from estimator_emb.reporting.text_columns import counted

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_UPDATES = 0.5
_OF_MODEL_FN: Any = object()
"""Stands for the loss that model_fn returns."""


class _Pauses(threading.local):
    """The seconds that a thread has paused, and the start of its current pause, for `clock`."""

    seconds = 0.0
    began: float | None = None


_pauses = _Pauses()


@contextlib.contextmanager
def pausing() -> Iterator[None]:
    """Excludes the time inside from this thread's training speed. May be nested."""
    if _pauses.began is not None:
        yield  # The outer pause counts.
        return
    _pauses.began = began = time.monotonic()
    try:
        yield
    finally:
        _pauses.seconds += time.monotonic() - began
        _pauses.began = None


def clock() -> float:
    """Returns a time in seconds that stops during this thread's pauses."""
    return (time.monotonic() if _pauses.began is None else _pauses.began) - _pauses.seconds


class _Progress(tf.compat.v1.train.SessionRunHook):
    """A hook that measures progress and calls `_write` regularly.

    The speed leaves out evaluations and saves between steps.
    """

    _steps: int | None = None
    """Number of steps still to train, if `total_steps` is None."""

    def __init__(self, total_steps: int | None, batch_size: int | None, loss: Any):
        self._total = total_steps
        self._batch_size = batch_size
        self._loss = loss

    def begin(self) -> None:
        self._global_step = tf.compat.v1.train.get_or_create_global_step()
        self._fetches: dict[str, Any] = {}
        loss = self._loss
        if loss is _OF_MODEL_FN:
            loss = _returned_loss()
        elif isinstance(loss, str):
            loss = _named(loss)
        if loss is not None:
            self._fetches["loss"] = loss

    def after_create_session(self, session: Any, coord: Any) -> None:
        for saver in session.graph.get_collection(tf.compat.v1.GraphKeys.SAVERS):
            if not getattr(saver.save, "pauses", False):
                saver.save = pausing()(saver.save)
                saver.save.pauses = True
        self._first_step = self._shown_step = int(session.run(self._global_step))
        if self._total is None and self._steps is not None:
            self._total = self._first_step + self._steps
        self._started = self._shown_at = clock()
        self._runs = 0
        self._losses: list[float] = []
        self._last_loss: float | None = None

    def before_run(self, run_context: Any) -> Any:
        return tf.compat.v1.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._runs += 1
        if "loss" in run_values.results:
            self._losses.append(float(run_values.results["loss"]))
        if clock() - self._shown_at >= self._pause():
            self._show(run_context.session)

    def end(self, session: Any) -> None:
        # The last line shows the speed of the whole run.
        self._shown_step, self._shown_at = self._first_step, self._started
        self._show(session)

    def _pause(self) -> float:
        """Returns the number of seconds between calls of `_write`."""
        return _SECONDS_BETWEEN_LINES

    def _write(self, step: int, parts: list[str]) -> None:
        raise NotImplementedError

    def _show(self, session: Any) -> None:
        # Read after the run: a value fetched by the run may be older than its last step.
        step = int(session.run(self._global_step))
        now = clock()
        speed = (step - self._shown_step) / max(now - self._shown_at, 1e-9)
        self._shown_step, self._shown_at = step, now
        if self._losses:
            self._last_loss = sum(self._losses) / len(self._losses)
            self._losses = []
        parts = [] if self._last_loss is None else [f"mean loss {self._last_loss:.4f}"]
        if self._batch_size is None:
            parts.append(f"{speed:,.1f} steps/s")
        else:
            parts.append(f"{speed * self._batch_size:,.0f} examples/s")
        if self._runs > 1 and step == self._first_step:
            parts.append("no step raises the global step")
        self._write(step, parts)

    def _line(self, step: int, parts: list[str]) -> str:
        total = "" if self._total is None else f" of {self._total:,}"
        return ", ".join([f"step {step:,}{total}", *parts])


class ProgressLog(_Progress):
    """A hook that logs progress about every ten seconds and at the end.

    `TPUEstimator.train` adds it unless the program passes a ProgressHook. Short calls of `train`
    log a line only if the last line is at least ten seconds old. If `batch_size` is None, it logs
    steps per second.
    """

    _ended: ClassVar[dict[str, float]] = {}
    """model_dir -> time of its last line, from `clock`."""

    def __init__(
        self, steps: int | None, max_steps: int | None, batch_size: int | None, model_dir: str
    ):
        super().__init__(max_steps, batch_size, _OF_MODEL_FN)
        self._steps = steps
        self._model_dir = model_dir

    def end(self, session: Any) -> None:
        now = clock()
        before = self._ended.get(self._model_dir, -math.inf)
        if now - min(self._started, before) >= _SECONDS_BETWEEN_LINES:
            super().end(session)

    def _write(self, step: int, parts: list[str]) -> None:
        if step > self._first_step or self._runs > 1:
            self._ended[self._model_dir] = clock()
            logger.info(self._line(step, parts), extra=_numbers(step=step, loss=self._last_loss))


class EvaluationLog(tf.compat.v1.train.SessionRunHook):
    """A hook that counts the `batches` of an evaluation, and logs them about every ten seconds.

    `steps` is the requested number of batches, if any.
    """

    batches: int | None = None

    def __init__(self, steps: int | None):
        self._total = "" if steps is None else f" of {steps:,}"
        self._runs = 0
        self._in_run = False

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._counters = session.graph.get_collection(tf.compat.v1.GraphKeys.EVAL_STEP)
        self._shown_batches, self._shown_at = 0, time.monotonic()

    def before_run(self, run_context: Any) -> None:
        self._in_run = True

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._in_run = False
        self._runs += 1
        seconds = time.monotonic() - self._shown_at
        if seconds >= _SECONDS_BETWEEN_LINES:
            batches = self._count(run_context.session)
            speed = (batches - self._shown_batches) / seconds
            self._shown_batches, self._shown_at = batches, time.monotonic()
            logger.info(
                "evaluation: batch %s%s, %.1f batches/s", f"{batches:,}", self._total, speed
            )

    def end(self, session: Any) -> None:
        # In the call that reaches the end of the input, TensorFlow may count a batch too many.
        self.batches = self._runs if self._in_run else self._count(session)

    def _count(self, session: Any) -> int:
        """Returns the number of batches so far. On a TPU, a session call may have several."""
        return int(session.run(self._counters[0])) if self._counters else self._runs


class ProgressHook(_Progress):
    """A hook that shows a training's progress on stderr: steps, loss, examples per second.

    On a terminal, and on stdout in a notebook, it draws a bar. Elsewhere it prints a line about
    every ten seconds and a last line at the end. The bar closes when training ends or fails. The
    loss is the mean over the steps since it was last shown.

    Pass it to `TPUEstimator.train`:

        estimator.train(input_fn, hooks=[ProgressHook(1000, 128, "loss")], max_steps=1000)

    Args:
      total_steps: the global step at which training ends; None shows no total. The bar of a resumed
        training begins at the step of its checkpoint.
      batch_size: examples per step; None shows steps per second.
      loss: 'loss' shows the loss that model_fn returns. No op should have that name: TensorFlow
        would call the curve in TensorBoard loss_1. A scalar tensor or its name is shown too. None,
        the default, shows no loss. If the graph has no tensor of that name, the hook warns and
        shows no loss. On a TPU the loss is never shown, because model_fn's tensors are inside the
        training loop.
    """

    def __init__(self, total_steps: int | None, batch_size: int | None, loss: Any = None):
        super().__init__(total_steps, batch_size, loss)
        self._bar: Any = None
        self._lock = threading.Lock()

    def after_create_session(self, session: Any, coord: Any) -> None:
        super().after_create_session(session, coord)
        if console.interactive() or sys.stderr.isatty():
            self._bar = bars.bar(
                total=self._total,
                initial=self._first_step,
                bar_format="{n_fmt} steps [{elapsed}{postfix}]"
                if self._total is None
                else "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} steps "
                "[{elapsed}<{remaining}{postfix}]",
            )
            # After an error `end` is not called, but the session's coordinator always stops.
            closer = threading.Thread(target=self._close_after, args=[coord], daemon=True)
            closer.start()
            coord.register_thread(closer)

    def end(self, session: Any) -> None:
        super().end(session)
        self._close()

    def _pause(self) -> float:
        return super()._pause() if self._bar is None else _SECONDS_BETWEEN_UPDATES

    def _write(self, step: int, parts: list[str]) -> None:
        with self._lock:
            if self._bar is not None:
                self._bar.set_postfix_str(", ".join(parts), refresh=False)
                self._bar.n = step
                self._bar.refresh()
                return
        print(self._line(step, parts), file=sys.stderr, flush=True)

    def _close_after(self, coord: Any) -> None:
        coord.wait_for_stop()
        self._close()

    def _close(self) -> None:
        with self._lock:
            if self._bar is not None:
                self._bar.close()
                self._bar = None


def log_beside(
    hooks: Any, steps: int | None, max_steps: int | None, batch_size: int | None, model_dir: str
) -> list[_Progress]:
    """Returns the hooks that show progress, or [] if `hooks` contains a `ProgressHook`.

    In an interactive interpreter they draw a bar, unless the program has disabled INFO lines.
    """
    if any(isinstance(hook, ProgressHook) for hook in hooks or ()):
        return []
    if console.interactive() and logger.isEnabledFor(logging.INFO):
        bar = ProgressHook(max_steps, batch_size, _OF_MODEL_FN)
        bar._steps = steps
        return [bar]
    return [ProgressLog(steps, max_steps, batch_size, model_dir)]


def log_evaluation(metrics: Any, model_dir: str, output_dir: str, batches: int | None) -> None:
    """Logs the metrics of an evaluation and its number of batches.

    If tensorflow-estimator's own line with the metrics is shown, only the batches are logged.
    """
    if not isinstance(metrics, dict):
        return
    name = os.path.relpath(output_dir, model_dir).removeprefix("eval").removeprefix("_")
    begin = f"evaluation {name!r}" if name else "evaluation"
    others = sorted(metrics.keys() - {"loss", "global_step"})
    texts = (
        f"{key} {_text(metrics[key])}"
        for key in ("loss", *others)
        if key in metrics and not isinstance(metrics[key], bytes)  # Bytes are summaries, pictures.
    )
    begin += f" at step {_text(metrics.get('global_step'))}"
    over = "" if batches is None else f"over {counted(batches, 'batch', 'batches')}"
    numbers = _numbers(evaluation=name, metrics=metrics)
    if not console.shows_estimators():
        logger.info("%s: %s%s", begin, ", ".join(texts), over and f" ({over})", extra=numbers)
    elif over:
        logger.info("%s: %s", begin, over, extra=numbers)


def _numbers(**values: Any) -> dict[str, Any]:
    # One attribute of our own: a program's records may have a `step`, and logging would raise.
    return {"estimator_emb": values}


def _text(value: Any) -> str:
    if np.shape(value):
        return f"of shape {list(np.shape(value))}"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    try:
        return f"{float(value):.5g}"
    except (TypeError, ValueError):
        return str(value)  # A log line must not fail the evaluation.


def _returned_loss() -> tf.Tensor | None:
    """Returns the loss of model_fn from the collection to which an Estimator adds it."""
    losses = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.LOSSES)
    return losses[-1] if losses else None


def _named(loss: str) -> tf.Tensor | None:
    """Returns the tensor of the loss by name, or warns if it is missing."""
    name = loss if ":" in loss else f"{loss}:0"
    graph = tf.compat.v1.get_default_graph()
    with contextlib.suppress(KeyError):
        tensor = graph.get_tensor_by_name(name)
        # On an emulated TPU, model_fn's tensors are not fetchable.
        if tensor.dtype.is_floating and graph.is_fetchable(tensor):
            return tensor
    returned = _returned_loss()
    if loss == "loss" and returned is not None:
        return returned
    logger.warning("ProgressHook: the graph has no tensor %r; no loss is shown.", name)
    return None
