# SPDX-License-Identifier: Apache-2.0
"""A progress bar for training."""

import logging
import os
import sys
import threading
import time
from typing import Any

import tensorflow as tf
import tqdm

logger = logging.getLogger("estimator_emb")

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_UPDATES = 0.5


class ProgressHook(tf.compat.v1.train.SessionRunHook):
    """Shows on stderr how far training is: steps, loss, examples per second.

    On a terminal it is a bar; anywhere else, one line about every ten seconds and one at the end.
    The bar closes when training ends, also when it ends by an error. The loss shown is the mean
    over the steps since it was last shown.

    Pass it to `TPUEstimator.train`:

        estimator.train(input_fn, hooks=[ProgressHook(1000, 128, "loss")], max_steps=1000)

    Args:
      total_steps: the global step at which training ends. A resumed run starts where it was.
      batch_size: examples per step.
      loss: 'loss' shows the loss that model_fn returns, which needs no name of its own: an op that
        is called loss makes TensorFlow call the curve in TensorBoard loss_1. Else a scalar tensor,
        or the name of one in the graph. A name that the graph lacks is left out with a warning: on
        a TPU, model_fn's tensors are inside the training loop. None shows no loss.
    """

    def __init__(self, total_steps: int, batch_size: int, loss: Any = None):
        self._total = total_steps
        self._batch_size = batch_size
        self._loss = loss
        self._fetches: dict[str, Any] = {}
        self._global_step: Any = None
        self._bar: Any = None
        self._lock = threading.Lock()
        self._first_step = self._shown_step = 0
        self._started = self._shown_at = 0.0
        self._losses: list[float] = []
        self._last_loss: float | None = None

    def begin(self) -> None:
        self._global_step = tf.compat.v1.train.get_or_create_global_step()
        self._fetches = {"step": self._global_step}
        loss = self._loss
        if isinstance(loss, str):
            loss = _named(loss)
        if loss is not None:
            self._fetches["loss"] = loss

    def after_create_session(self, session: Any, coord: Any) -> None:
        step = int(session.run(self._global_step))
        self._close()
        self._first_step = self._shown_step = step
        self._started = self._shown_at = time.monotonic()
        self._losses, self._last_loss = [], None
        if sys.stderr.isatty():
            self._bar = tqdm.tqdm(
                total=self._total,
                initial=step,
                file=sys.stderr,
                **_size(),
                bar_format="{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} steps "
                "[{elapsed}<{remaining}{postfix}]",
            )
            # An error skips `end`, but the session's coordinator stops in every case.
            closer = threading.Thread(target=self._close_after, args=[coord], daemon=True)
            closer.start()
            coord.register_thread(closer)

    def before_run(self, run_context: Any) -> Any:
        return tf.compat.v1.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if "loss" in run_values.results:
            self._losses.append(float(run_values.results["loss"]))
        pause = _SECONDS_BETWEEN_UPDATES if self._bar is not None else _SECONDS_BETWEEN_LINES
        if time.monotonic() - self._shown_at >= pause:
            self._show(int(run_values.results["step"]))

    def end(self, session: Any) -> None:
        # The whole run's speed says more at the end than the last moment's.
        self._shown_step, self._shown_at = self._first_step, self._started
        self._show(int(session.run(self._global_step)))
        self._close()

    def _show(self, step: int) -> None:
        now = time.monotonic()
        speed = (step - self._shown_step) * self._batch_size / max(now - self._shown_at, 1e-9)
        self._shown_step, self._shown_at = step, now
        if self._losses:
            self._last_loss = sum(self._losses) / len(self._losses)
            self._losses = []
        parts = [] if self._last_loss is None else [f"loss {self._last_loss:.4f}"]
        parts.append(f"{speed:,.0f} examples/s")
        with self._lock:
            if self._bar is not None:
                self._bar.set_postfix_str(", ".join(parts), refresh=False)
                self._bar.n = step
                self._bar.refresh()
                return
        line = ", ".join([f"step {step:,} of {self._total:,}", *parts])
        print(line, file=sys.stderr, flush=True)

    def _close_after(self, coord: Any) -> None:
        coord.wait_for_stop()
        self._close()

    def _close(self) -> None:
        with self._lock:
            if self._bar is not None:
                self._bar.close()
                self._bar = None


def _named(loss: str) -> tf.Tensor | None:
    """Returns the loss of this name, None where the graph has none."""
    name = loss if ":" in loss else f"{loss}:0"
    graph = tf.compat.v1.get_default_graph()
    try:
        tensor = graph.get_tensor_by_name(name)
    except KeyError:
        tensor = None
    if tensor is not None and tensor.dtype.is_floating:
        if loss == "loss":
            logger.warning(
                "ProgressHook: model_fn calls an op 'loss', for which TensorFlow calls the curve "
                "of the loss in TensorBoard 'loss_1'. Take the name away: ProgressHook(..., "
                "'loss') finds the loss without it."
            )
        return tensor
    # An Estimator notes the loss that model_fn returned.
    losses = graph.get_collection(tf.compat.v1.GraphKeys.LOSSES)
    if loss == "loss" and losses:
        return losses[-1]
    logger.warning("ProgressHook: the graph has no tensor %r; no loss is shown.", name)
    return None


def _size() -> dict[str, Any]:
    """How large tqdm draws; by itself it draws nothing where the terminal gives no size."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        columns = 0
    return {"dynamic_ncols": True} if columns else {"ncols": 80, "nrows": 24}
