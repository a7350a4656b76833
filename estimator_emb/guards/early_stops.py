"""Logs why a training stops early and which step was best, or that no hook could stop it."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from estimator_emb.compat.internals.estimators import (
    MultiWorkerEarlyStoppingHook,
    StopOnPredicateHook,
    read_eval_metrics,
)
from estimator_emb.guards.guard import Call, Guard
from estimator_emb.reporting.console import logger
from estimator_emb.reporting.text_columns import counted


class EarlyStops(Guard):
    """Makes the early-stopping hooks of `tf.estimator.experimental` log why they stop."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.method == "train"

    @contextlib.contextmanager
    def surround(self) -> Iterator[Any]:
        kinds = (StopOnPredicateHook, MultiWorkerEarlyStoppingHook)
        stopping = [hook for hook in self.call.hooks or () if isinstance(hook, kinds)]
        asked = [hook._should_stop_fn for hook in stopping]
        for hook in stopping:
            if not hasattr(hook._should_stop_fn, "says_why"):
                hook._should_stop_fn = _saying(hook._should_stop_fn)
        yield []
        for should_stop_fn in asked:
            _say_blind(getattr(should_stop_fn, "says_why", should_stop_fn))


def _saying(should_stop_fn: Callable[[], Any]) -> Callable[[], Any]:
    def said() -> Any:
        stops = should_stop_fn()
        if stops:
            logger.info("Early stopping: %s", _why(should_stop_fn))
        return stops

    said.says_why = should_stop_fn  # type: ignore[attr-defined]
    return said


def _used(should_stop_fn: Callable[[], Any]) -> Mapping[str, Any]:
    """Returns the arguments of a hook of `tf.estimator.experimental`, or {} for other hooks."""
    if getattr(should_stop_fn, "__module__", None) != read_eval_metrics.__module__:
        return {}
    return inspect.getclosurevars(should_stop_fn).nonlocals


def _say_blind(should_stop_fn: Callable[[], Any]) -> None:
    """Logs a line if a hook had too few evaluations to compare."""
    used = _used(should_stop_fn)
    if not used:
        return
    seen = sum(step >= used["min_steps"] for step in read_eval_metrics(used["eval_dir"]))
    needed = 2 if "max_steps_without_improvement" in used else 1
    if seen < needed:
        logger.info(
            "Early stopping: nothing could stop this training by %s: after min_steps=%s, %s has "
            "%s, and the hook needs %d. Evaluate in shorter intervals (save_checkpoints_steps, "
            "EvalSpec.throttle_secs), or train longer.",
            used["metric_name"],
            f"{used['min_steps']:,}",
            used["eval_dir"],
            counted(seen, "evaluation"),
            needed,
        )


def _why(should_stop_fn: Callable[[], Any]) -> str:
    by_program = f"{getattr(should_stop_fn, '__name__', should_stop_fn)} returned True."
    used = _used(should_stop_fn)
    if not used:
        return by_program
    metric, is_better = used["metric_name"], used["is_lhs_better"]
    most = used.get("max_steps_without_improvement")
    best = value_of_best = step = None
    for step, metrics in read_eval_metrics(used["eval_dir"]).items():
        if step < used["min_steps"]:
            continue
        if best is None or is_better(metrics[metric], value_of_best):
            best, value_of_best = step, metrics[metric]
        if most is not None and step - best >= most:
            break  # The hook has stopped here, too.
    if best is None or step is None:
        return by_program
    if most is None:
        reason = f"{metric} is {used['greater_or_lesser']} {used['threshold']:g}"
    else:
        reason = f"{metric} has not {used['increase_or_decrease']}d for {step - best:,} steps"
    return f"{reason}; its best value is {value_of_best:.5g}, of step {best:,}."
