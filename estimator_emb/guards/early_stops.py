"""Says why a training stops early, and which step was best."""

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

from estimator_emb.compat.internals.estimators import (
    MultiWorkerEarlyStoppingHook,
    StopOnPredicateHook,
    read_eval_metrics,
)
from estimator_emb.guards.guard import Call, Guard
from estimator_emb.reporting.console import logger


class EarlyStops(Guard):
    """Has the hooks of `tf.estimator.experimental` that stop a training log one line then."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.method == "train"

    def surround(self) -> contextlib.AbstractContextManager[Any]:
        kinds = (StopOnPredicateHook, MultiWorkerEarlyStoppingHook)
        for hook in self.call.hooks or ():
            if isinstance(hook, kinds) and not hasattr(hook._should_stop_fn, "says_why"):
                hook._should_stop_fn = _saying(hook._should_stop_fn)
        return super().surround()


def _saying(should_stop_fn: Callable[[], Any]) -> Callable[[], Any]:
    def said() -> Any:
        stops = should_stop_fn()
        if stops:
            logger.info("Early stopping: %s", _why(should_stop_fn))
        return stops

    said.says_why = True  # type: ignore[attr-defined]
    return said


def _why(should_stop_fn: Callable[[], Any]) -> str:
    by_program = f"{getattr(should_stop_fn, '__name__', should_stop_fn)} returned True."
    if getattr(should_stop_fn, "__module__", None) != read_eval_metrics.__module__:
        return by_program
    used = inspect.getclosurevars(should_stop_fn).nonlocals
    metric, is_better = used["metric_name"], used["is_lhs_better"]
    most = used.get("max_steps_without_improvement")
    best = value_of_best = step = None
    for step, metrics in read_eval_metrics(used["eval_dir"]).items():
        if step < used["min_steps"]:
            continue
        if best is None or is_better(metrics[metric], value_of_best):
            best, value_of_best = step, metrics[metric]
        if most is not None and step - best >= most:
            break  # Here the hook has stopped, too.
    if best is None or step is None:
        return by_program
    if most is None:
        reason = f"{metric} is {used['greater_or_lesser']} {used['threshold']:g}"
    else:
        reason = f"{metric} has not {used['increase_or_decrease']}d for {step - best:,} steps"
    return f"{reason}; its best value is {value_of_best:.5g}, of step {best:,}."
