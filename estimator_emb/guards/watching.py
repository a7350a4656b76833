"""Runs the guards of calls and of graphs. A graph's guards are stored with the graph."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.restoring import warm_starts
from estimator_emb.engine.cores import Cores
from estimator_emb.engine.engine import LiveTables
from estimator_emb.engine.pipelining import LookaheadBuffer
from estimator_emb.guards import calls
from estimator_emb.guards.checks import batch_names
from estimator_emb.guards.every import GUARDS
from estimator_emb.guards.guard import (
    GUARDS_OF_GRAPH,
    Call,
    ModelBatch,
    Runs,
    graph_guards,
    with_hooks,
)

_EXPLAINED = "_estimator_emb_explained"


class GraphGuards:
    """The guards of a call or of one of its graphs, and the facts that they can read.

    The builder of the graph sets `cores`, `lookup` and, once they are known, the `losses` of all
    cores.
    """

    def __init__(self, call: Call):
        self.call = call
        self.cores = Cores()
        self.lookup: LiveTables | None = None
        self.losses: Sequence[tf.Tensor] = ()
        self._batch: ModelBatch | None = None
        self._guards = [guard(self) for guard in GUARDS if guard.applies(call)]

    @contextlib.contextmanager
    def surround(self) -> Iterator[list[Any]]:
        """Surrounds the call. Yields the hooks that guards add to its session."""
        with contextlib.ExitStack() as stack:
            yield _hooks(stack, [guard.surround() for guard in self._guards])

    @contextlib.contextmanager
    def building(self, estimator: Any) -> Iterator[None]:
        """Surrounds the part of the call in which the estimator builds a graph."""
        with contextlib.ExitStack() as stack:
            for guard in self._guards:
                stack.enter_context(guard.building())
            stack.enter_context(calls.current(estimator, self.call))
            yield

    def evaluate(self, run: Callable[..., Any], all_hooks: Sequence[Any], output_dir: str) -> Any:
        """Calls `run(all_hooks=...)` with the guards' hooks added. Returns the metrics."""
        with contextlib.ExitStack() as stack:
            # Last: if the input ends in the middle of a loop, the loop's hook explains it better.
            own = _hooks(stack, [guard.evaluating() for guard in self._guards])
            metrics = run(all_hooks=[*all_hooks, *own])
        for guard in self._guards:
            guard.evaluated(metrics, output_dir)
        return metrics

    def predictions(self, estimator: Any, values: Any) -> Iterator[Any]:
        """Yields the predictions of the estimator's generator `values`, watched by guards."""
        with self.surround(), contextlib.closing(values):
            # The first prediction builds the graph. Later, other calls may use the estimator.
            with self.building(estimator):
                first = list(itertools.islice(values, 1))
            yield from first
            yield from values

    @property
    def seen(self) -> Any:
        return None if self._batch is None else self._batch.seen

    @property
    def ahead(self) -> LookaheadBuffer | None:
        return None if self.lookup is None else self.lookup.step.next_step

    def inputs(self) -> list[tuple[str, Any]]:
        if self._batch is None:
            return []
        if self.call.runs is Runs.PLAIN and tf.distribute.has_strategy():
            return []  # Each replica has its own batch.
        parts = {"features": self._batch.features, "labels": self._batch.labels}
        return list(batch_names.named(parts))

    def losses_of(self, spec: Any) -> Sequence[tf.Tensor]:
        if spec.loss is None or not self.inputs():
            return []
        return list(self.losses) or [spec.loss]

    def warm_start(self) -> Any:
        if self.call.training and self.lookup is not None:
            return self.lookup.warm_start(self.call.warm_start)
        return warm_starts.with_all_weights(self.call.warm_start, self.call.model_dir)

    def calling(self) -> None:
        for guard in self._guards:
            guard.calling()

    def returned(self, owner: str, value: Any) -> Any:
        for guard in self._guards:
            value = guard.returned(owner, value)
        return value

    def before(self, batch: ModelBatch) -> ModelBatch:
        for guard in self._guards:
            batch = guard.before(batch)
        return batch

    @contextlib.contextmanager
    def around(self, batch: ModelBatch) -> Iterator[None]:
        self._batch = batch
        with contextlib.ExitStack() as stack:
            for guard in self._guards:
                stack.enter_context(guard.around(batch))
            yield

    def after(self, spec: Any) -> Any:
        for guard in self._guards:
            spec = guard.after(spec)
        return spec

    def built(self, spec: Any) -> Any:
        for guard in self._guards:
            spec = guard.built(spec)
        return spec

    def complete(self, spec: Any) -> Any:
        for guard in self._guards:
            spec = guard.complete(spec)
        for guard in self._guards:
            spec = with_hooks(spec, guard.hooks(spec), self.call.mode)
        return spec

    def training(
        self, spec: Any, worker_hooks: Sequence[Any], hooks: Sequence[Any]
    ) -> tuple[Any, Sequence[Any]]:
        for guard in self._guards:
            spec, hooks = guard.training(spec, worker_hooks, hooks)
        return spec, hooks

    def explain(self, error: Exception) -> Exception | None:
        """Returns the first guard's explanation of `error`, if any. It may be `error` itself."""
        if hasattr(error, _EXPLAINED):  # An evaluation inside a training explained it.
            return None
        setattr(error, _EXPLAINED, True)
        return next(filter(None, (guard.explain(error) for guard in self._guards)), None)


def guards_of(call: Call) -> GraphGuards:
    """Returns the default graph's guards, or new guards if they belong to another call."""
    graph = tf.compat.v1.get_default_graph()
    while (outer := getattr(graph, "outer_graph", None)) is not None:
        graph = outer
    found = graph_guards(graph)
    if found is None or (found.call.method, found.call.mode) != (call.method, call.mode):
        found = GraphGuards(call)
        setattr(graph, GUARDS_OF_GRAPH, found)
    return found


def _hooks(stack: contextlib.ExitStack, contexts: Sequence[Any]) -> list[Any]:
    """Enters the contexts. Returns the hooks from the lists that they yield."""
    return [hook for context in contexts for hook in stack.enter_context(context) or ()]
