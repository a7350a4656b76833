"""Watches the calls of estimators: runs the checks of each event, and what a call needs anyway.

`CHECKS` lists all checks. They run in this order. What a training cannot do without, such as savers
and locks, is no check: it is called by its name, here.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.engine.cores import Cores
from estimator_emb.guards import (
    call_errors,
    input_fn,
    keras_layers,
    model,
    numbers,
    process,
    saving,
    steps,
    table_use,
)
from estimator_emb.guards.call import METHODS, Call, made
from estimator_emb.guards.events import (
    FACTS,
    REGISTERED,
    Event,
    Facts,
    ModelBatch,
    facts_of,
    with_hooks,
)
from estimator_emb.reporting import error_notes, progress

CURRENT = "_estimator_emb_watch"
"""The estimator's attribute that holds the `Watch` of its current call."""

CHECKS = [
    check
    for file in (input_fn, table_use, model, keras_layers, steps, numbers, call_errors)
    for check in REGISTERED[file.__name__]
]
"""All checks, file by file and from top to bottom."""


def _checks(event: Event, call: Call) -> list[Callable[..., Any]]:
    return [check.run for check in CHECKS if check.event is event and check.applies(call)]


class Watch:
    """Watches one call of an estimator. Its graphs are watched by `WatchedGraph`s."""

    def __init__(self, call: Call):
        self.call = call

    @classmethod
    def begun(cls, base: Call, method: str, **given: Any) -> "Watch":
        """Returns the watch of a call of `method`. The arguments are those of `call.made`."""
        return cls(made(base, method, **given))

    @contextlib.contextmanager
    def surround(self) -> Iterator[list[Any]]:
        """Surrounds the call. Yields the hooks for its session."""
        call = self.call
        with contextlib.ExitStack() as stack:
            hooks = [*stack.enter_context(process.shown(call))]
            stack.enter_context(call_errors.shortened(call))
            for check in _checks(Event.CALL, call):
                hooks += stack.enter_context(check(call)) or ()
            hooks += stack.enter_context(process.stoppable(call)) or ()
            hooks += stack.enter_context(saving.locked(call))
            yield hooks

    @contextlib.contextmanager
    def building(self, estimator: Any) -> Iterator[None]:
        """Surrounds the part of the call in which the estimator builds a graph."""
        with contextlib.ExitStack() as stack:
            for explain in reversed(_checks(Event.GRAPH_FAILED, self.call)):
                stack.enter_context(error_notes.explained(_with(explain, self.call)))
            stack.enter_context(saving.restoring(self.call))
            stack.enter_context(_current(estimator, self))
            yield

    def evaluate(self, run: Callable[..., Any], all_hooks: Sequence[Any], output_dir: str) -> Any:
        """Calls `run(all_hooks=...)` with more hooks for the session. Returns the metrics."""
        call = self.call
        saving.writing(output_dir)
        with process.evaluating(call) as (log, end):
            # Last: if the input ends in the middle of a loop, the loop's hook explains it better.
            own = [log, end, *_hooks(_checks(Event.EVALUATION, call), call)]
            metrics = run(all_hooks=[*all_hooks, *own])
        progress.log_evaluation(metrics, call.model_dir, output_dir, log.batches)
        return metrics

    def predictions(self, estimator: Any, values: Any) -> Iterator[Any]:
        """Yields the predictions of the estimator's generator `values`."""
        with self.surround(), contextlib.closing(values):
            # The first prediction builds the graph. Later, other calls may use the estimator.
            with self.building(estimator):
                first = list(itertools.islice(values, 1))
            yield from first
            yield from values


class WatchedGraph(Facts):
    """Watches a graph while a call builds it, and holds what is known of the graph."""

    def begins(self) -> None:
        """Checks the call before model_fn builds its graph."""
        for check in _checks(Event.GRAPH_BEGINS, self.call):
            check(self.call)

    def input_returned(self, owner: str, value: Any) -> Any:
        """Returns input_fn's value, checked or replaced. `owner` names input_fn in messages."""
        for check in _checks(Event.INPUT_RETURNED, self.call):
            check(self.call, owner, value)
        return input_fn.with_late_reads(self.call, value)

    @contextlib.contextmanager
    def model_runs(self, batch: ModelBatch, cores: Cores) -> Iterator[None]:
        """Surrounds model_fn, which gets `batch` on each of the `cores` that share the step."""
        self.batch, self.cores = batch, cores
        with contextlib.ExitStack() as stack:
            for context in _checks(Event.MODEL_RUNS, self.call):
                stack.enter_context(context(self))
            stack.enter_context(steps.noting_default_variables(self))
            for explain in reversed(_checks(Event.MODEL_FAILED, self.call)):
                stack.enter_context(error_notes.explained(_with(explain, self)))
            yield

    def model_returned(self, spec: Any) -> Any:
        """Returns the value of model_fn, checked or replaced."""
        for check in _checks(Event.MODEL_RETURNED, self.call):
            replaced = check(self, spec)
            spec = spec if replaced is None else replaced
        self.model_loss = spec.loss
        table_use.check_workers(self.call)
        return spec

    def completed(self, spec: Any) -> Any:
        """Returns the `EstimatorSpec` of the complete graph, with the hooks that it needs."""
        mode = self.call.mode
        saving.complete_savers(self, spec)
        hooks = _hooks(_checks(Event.GRAPH_COMPLETED, self.call), self, spec)
        self.ops.forget()
        saving.check_fit(self, spec)
        spec = with_hooks(spec, [*hooks, *table_use.hooks(self), *process.closes(self.call)], mode)
        return steps.reads_first(self, spec)  # After all that adds ops or hooks.

    def training(
        self, spec: Any, worker_hooks: Sequence[Any], hooks: Sequence[Any]
    ) -> tuple[Any, Sequence[Any]]:
        """Returns a training's spec and hooks, just before its session."""
        spec = saving.with_saver(self, spec)
        spec = steps.reads_first_in_training(self, spec, worker_hooks, hooks)
        of_program = [*spec.training_hooks, *spec.training_chief_hooks]
        saving.take_turns(self, [*worker_hooks, *hooks, *of_program])
        return spec, hooks


@contextlib.contextmanager
def _current(estimator: Any, watch: Watch) -> Iterator[None]:
    """Makes `watch_of` return `watch` for this estimator inside the context."""
    before = vars(estimator).get(CURRENT)
    setattr(estimator, CURRENT, watch)
    try:
        yield
    finally:
        setattr(estimator, CURRENT, before)


def watch_of(estimator: Any, base: Call, mode: str) -> Watch:
    """Returns the watch of the call for which an estimator builds a graph of `mode`.

    This is not the current call if a training's hook builds an evaluation graph.
    """
    watch: Watch | None = vars(estimator).get(CURRENT)
    if watch is None or watch.call.mode not in ("", mode):
        watch = Watch(dataclasses.replace(base, method=METHODS.get(mode, "export"), mode=mode))
    return watch


def graph_of(estimator: Any, base: Call, mode: str) -> WatchedGraph:
    """Returns the default graph's `WatchedGraph` for a call that builds it in `mode`."""
    call = watch_of(estimator, base, mode).call
    return watched(dataclasses.replace(call, mode=mode, warm_start=base.warm_start))


def watched(call: Call) -> WatchedGraph:
    """Returns the default graph's `WatchedGraph`, or a new one if it belongs to another call."""
    graph = tf.compat.v1.get_default_graph()
    while (outer := getattr(graph, "outer_graph", None)) is not None:
        graph = outer
    found: WatchedGraph | None = facts_of(graph)
    if found is None or (found.call.method, found.call.mode) != (call.method, call.mode):
        found = WatchedGraph(call)
        setattr(graph, FACTS, found)
    return found


def _hooks(checks: Sequence[Callable[..., Any]], *given: Any) -> list[Any]:
    return [hook for check in checks for hook in check(*given) or ()]


def _with(explain: Callable[..., Any], given: Any) -> Callable[[Exception], Any]:
    return lambda error: explain(given, error)
