"""Runs the guards of a call and of its graphs, which are kept with the graphs."""

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
    """The guards that apply to a call or to one of its graphs, and what all of them may ask.

    Whoever builds the graph sets `cores`, `lookup` and, once they are known, the `losses` of all
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
        """Surrounds the call; yields the hooks that its session needs besides the program's."""
        with contextlib.ExitStack() as stack:
            yield _hooks(stack, [guard.surround() for guard in self._guards])

    @contextlib.contextmanager
    def building(self, estimator: Any) -> Iterator[None]:
        """Surrounds the part of the call in which the estimator builds a graph for it."""
        with contextlib.ExitStack() as stack:
            for guard in self._guards:
                stack.enter_context(guard.building())
            stack.enter_context(calls.current(estimator, self.call))
            yield

    def evaluate(self, run: Callable[..., Any], all_hooks: Sequence[Any], output_dir: str) -> Any:
        """Calls `run(all_hooks=...)` with all hooks that an evaluation needs; returns metrics."""
        with contextlib.ExitStack() as stack:
            # Last, because the hook of a loop that the end of the input cuts short says more.
            own = _hooks(stack, [guard.evaluating() for guard in self._guards])
            metrics = run(all_hooks=[*all_hooks, *own])
        for guard in self._guards:
            guard.evaluated(metrics, output_dir)
        return metrics

    def predictions(self, estimator: Any, values: Any) -> Iterator[Any]:
        """Yields predictions of an estimator, from its generator `values`."""
        with self.surround(), contextlib.closing(values):
            # The first prediction builds the graph; after it the estimator may do something else.
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
            return []  # Each replica has a batch of its own.
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

    def reads(self, dataset: Any) -> None:
        for guard in self._guards:
            guard.reads(dataset)

    def fed(self, features: Any, labels: Any, core: str) -> None:
        for guard in self._guards:
            guard.fed(features, labels, core)

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
            spec = with_hooks(spec, guard.hooks(spec))
        return spec

    def training(
        self, spec: Any, worker_hooks: Sequence[Any], hooks: Sequence[Any]
    ) -> tuple[Any, Sequence[Any]]:
        for guard in self._guards:
            spec, hooks = guard.training(spec, worker_hooks, hooks)
        return spec, hooks

    def explain(self, error: Exception) -> Exception | None:
        """Returns what the first guard that knows of an error does, which may be the error."""
        if hasattr(error, _EXPLAINED):  # An evaluation in a training explained it.
            return None
        setattr(error, _EXPLAINED, True)
        return next(filter(None, (guard.explain(error) for guard in self._guards)), None)


def guards_of(call: Call) -> GraphGuards:
    """Returns the guards of the default graph, which are new if it belongs to another call."""
    graph = tf.compat.v1.get_default_graph()
    while (outer := getattr(graph, "outer_graph", None)) is not None:
        graph = outer
    found = graph_guards(graph)
    if found is None or (found.call.method, found.call.mode) != (call.method, call.mode):
        found = GraphGuards(call)
        setattr(graph, GUARDS_OF_GRAPH, found)
    return found


def _hooks(stack: contextlib.ExitStack, contexts: Sequence[Any]) -> list[Any]:
    """Enters contexts; returns the hooks that they yield, in lists or None."""
    return [hook for context in contexts for hook in stack.enter_context(context) or ()]
