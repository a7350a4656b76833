"""Takes a batch around the model_fn of a program, wherever the model runs and the tables are.

`drive` is the one way from an input to a trained step:

1. the runner reads a batch, and the tables take their ids out of it;
2. guards see the batch, then model_fn runs inside of their contexts;
3. guards check what it returned;
4. the runner makes a step of it, in which the tables are created, looked up and updated.

Backends differ by two objects. A `TableStep` says where the tables are; without one, model_fn gets
what the input has. A `Runner` says who runs the model.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

from estimator_emb.compat import custom_gradients, legacy_optimizers
from estimator_emb.compat.internals.graphs import fn_args
from estimator_emb.engine.cores import Cores
from estimator_emb.engine.engine import PendingLookup, TableStep
from estimator_emb.engine.tables import scopes
from estimator_emb.engine.tables.column_reads import ColumnReads
from estimator_emb.guards import watching
from estimator_emb.guards.checks.program_checks import takes
from estimator_emb.guards.guard import Call, ModelBatch
from estimator_emb.guards.watching import GraphGuards
from estimator_emb.reporting import console


class Runner:
    """Runs a model_fn once; derived classes say how. `cores` are those that share the batch."""

    def __init__(self, guards: GraphGuards, cores: Cores):
        self.guards = guards
        self.cores = guards.cores = cores

    def says(self) -> str | None:
        """Returns what the log says of it before a training, or None."""
        return None

    def read(self, tables: TableStep | None) -> tuple[ModelBatch, PendingLookup | None, Any]:
        """Returns a batch, the activations in it, and the features that other columns may read."""
        raise NotImplementedError

    def carried(self, batch: ModelBatch, tables: TableStep) -> ModelBatch:
        """Returns the batch of the step whose activations the model gets."""
        return batch

    def running(self) -> contextlib.AbstractContextManager[Any]:
        """Makes the context in which model_fn sees what it would see on its device."""
        return contextlib.nullcontext()

    def call(self, batch: ModelBatch) -> Any:
        """Calls model_fn; returns what it returns."""
        raise NotImplementedError

    def step(self, spec: Any, pending: PendingLookup | None) -> Any:
        """Returns the step that the value of model_fn describes, with its tables."""
        return spec


class ThisGraph(Runner):
    """Runs a model_fn once in the graph, for a batch that tensorflow-estimator has read.

    `kwargs` are the arguments of model_fn besides features; labels may be among them.
    """

    def __init__(
        self,
        guards: GraphGuards,
        model_fn: Callable[..., Any],
        features: Any,
        kwargs: dict[str, Any],
    ):
        super().__init__(guards, Cores())
        self._model_fn = model_fn
        self._given = features, kwargs.get("labels")
        self._kwargs = kwargs

    def read(self, tables: TableStep | None) -> tuple[ModelBatch, PendingLookup | None, Any]:
        return ModelBatch(*self._given, given=self._given), None, {}

    def call(self, batch: ModelBatch) -> Any:
        kwargs = self._kwargs
        if "labels" in kwargs:
            kwargs = {**kwargs, "labels": batch.labels}
        return self._model_fn(features=batch.seen, **kwargs)


def drive(runner: Runner, tables: TableStep | None) -> Any:
    """Takes the batch of a runner around its model_fn; returns the runner's step."""
    guards = runner.guards
    call = guards.call
    if call.training:
        said = (runner.says(), tables.describe() if tables else None)
        for line in filter(None, said):
            console.say_once(line, call.model_dir)
    batch, pending, ids = runner.read(tables)
    batch = guards.before(batch)
    reads: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if tables is not None and pending is not None:
        batch = runner.carried(batch, tables)
        columns = ColumnReads(
            tables.tables, pending.features, ids, pending.again, tables.from_previous_step
        )
        batch = dataclasses.replace(batch, activations=columns.features)
        reads = columns.running()
    with guards.around(batch), runner.running(), reads:
        if call.has_spec:
            scopes.record()
        spec = runner.call(batch)
    spec = guards.after(spec)
    return guards.built(runner.step(spec, pending))


def driven(model_fn: Callable[..., Any], run: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `run` with the arguments that tensorflow-estimator reads of a model_fn, and `mode`.

    `run` gets features, labels or None, the mode, and the arguments of model_fn itself by name.
    """
    names = list(fn_args(model_fn))

    def with_mode(features: Any, mode: str, **kwargs: Any) -> Any:
        if "mode" in names:
            kwargs["mode"] = mode
        return run(features, mode, kwargs)

    return takes(with_mode, dict.fromkeys([*names, "mode"]))


def build(call: Call, model_fn: Callable[[], Any]) -> tuple[Any, GraphGuards]:
    """Builds a graph by a function that drives a model_fn; returns its `EstimatorSpec`, complete.

    The guards of the graph are returned too.
    """
    guards = watching.guards_of(call)
    guards.calling()
    with custom_gradients.ending_with_graph(), legacy_optimizers.made():
        spec = model_fn()
    return guards.complete(spec), guards
