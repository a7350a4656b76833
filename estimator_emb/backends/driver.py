"""Builds a step around a program's model_fn, in the same order for every backend.

`drive` turns an input into a step:

1. The runner reads a batch, and the tables take their ids from the batch.
2. The guards check the batch, then model_fn runs inside the guards' contexts.
3. The guards check the value that model_fn returned.
4. The runner builds a step that creates, looks up and updates the tables.

Backends differ in two objects. A `TableStep` says where the tables are. Without a `TableStep`,
model_fn gets the input unchanged. A `Runner` says where the model runs.
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
    """Base class that runs a model_fn once. `cores` share its batch."""

    def __init__(self, guards: GraphGuards, cores: Cores):
        self.guards = guards
        self.cores = guards.cores = cores

    def says(self) -> str | None:
        """Returns a line to log before training, or None."""
        return None

    def read(self, tables: TableStep | None) -> tuple[ModelBatch, PendingLookup | None, Any]:
        """Returns a batch, its pending lookup, and the features that other columns may read."""
        raise NotImplementedError

    def carried(self, batch: ModelBatch, tables: TableStep) -> ModelBatch:
        """Returns the batch that the activations belong to: with pipelining, the previous batch."""
        return batch

    def running(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context in which model_fn sees the same state as on its device."""
        return contextlib.nullcontext()

    def call(self, batch: ModelBatch) -> Any:
        """Calls model_fn and returns its result."""
        raise NotImplementedError

    def step(self, spec: Any, pending: PendingLookup | None) -> Any:
        """Returns the step for the value that model_fn returned, with the table updates."""
        return spec


class ThisGraph(Runner):
    """Runs a model_fn once in the default graph, on a batch from tensorflow-estimator.

    `kwargs` holds model_fn's arguments except features. Labels are optional.
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
        return ModelBatch(*self._given), None, {}

    def call(self, batch: ModelBatch) -> Any:
        kwargs = self._kwargs
        if "labels" in kwargs:
            kwargs = {**kwargs, "labels": batch.labels}
        return self._model_fn(features=batch.seen, **kwargs)


def drive(runner: Runner, tables: TableStep | None) -> Any:
    """Reads a batch, runs model_fn on it, and returns the step that the runner builds."""
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
    """Returns a function that calls `run` and has the parameters of `model_fn`, and `mode`.

    tensorflow-estimator passes the parameters that it finds. `run` gets features, the mode, and a
    dict of model_fn's other arguments, including labels.
    """
    names = list(fn_args(model_fn))

    def with_mode(features: Any, mode: str, **kwargs: Any) -> Any:
        if "mode" in names:
            kwargs["mode"] = mode
        return run(features, mode, kwargs)

    return takes(with_mode, dict.fromkeys([*names, "mode"]))


def build(call: Call, model_fn: Callable[[], Any]) -> tuple[Any, GraphGuards]:
    """Builds a graph, and returns its complete `EstimatorSpec` and its guards.

    `model_fn` takes no arguments and drives the program's model_fn.
    """
    guards = watching.guards_of(call)
    guards.calling()
    with custom_gradients.ending_with_graph(), legacy_optimizers.made():
        spec = model_fn()
    return guards.complete(spec), guards
