# SPDX-License-Identifier: Apache-2.0
"""Says why a training stops early, and which step was best."""

import inspect
import logging
from collections.abc import Callable
from typing import Any

from estimator_emb.private.experimental import EARLY_STOPPING_HOOKS, read_eval_metrics

logger = logging.getLogger("estimator_emb")


def say_why(hooks: Any) -> None:
    """Makes the hooks of `tf.estimator.experimental` that stop a training log one line then."""
    for hook in hooks or ():
        if isinstance(hook, EARLY_STOPPING_HOOKS) and not isinstance(hook._should_stop_fn, _Said):
            hook._should_stop_fn = _Said(hook._should_stop_fn)


class _Said:
    """A `should_stop_fn` that logs why it returns True."""

    def __init__(self, should_stop_fn: Callable[[], Any]):
        self._should_stop_fn = should_stop_fn

    def __call__(self) -> Any:
        stops = self._should_stop_fn()
        if stops:
            logger.info("Early stopping: %s", _why(self._should_stop_fn))
        return stops


def _why(should_stop_fn: Callable[[], Any]) -> str:
    used: Any = {}
    if inspect.isfunction(should_stop_fn):
        used = inspect.getclosurevars(should_stop_fn).nonlocals
    if not {"eval_dir", "metric_name", "min_steps", "is_lhs_better"} <= used.keys():
        return f"{getattr(should_stop_fn, '__name__', should_stop_fn)} returned True."
    metric, is_better = used["metric_name"], used["is_lhs_better"]
    values = {
        step: metrics[metric]
        for step, metrics in read_eval_metrics(used["eval_dir"]).items()
        if step >= used["min_steps"] and metric in metrics
    }
    last = best = next(iter(values))
    for step, value in values.items():
        last = step
        if is_better(value, values[best]):
            best = step
    reason = f"{metric} has not {used.get('increase_or_decrease')}d for {last - best:,} steps"
    if "threshold" in used:
        reason = f"{metric} is {used['greater_or_lesser']} {used['threshold']:g}"
    return f"{reason}; its best value is {values[best]:.5g}, of step {best:,}."
