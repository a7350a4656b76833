"""Builds a step around a program's model_fn, in the same order for every backend.

`drive` turns an input into a step:

1. The runner feeds a batch, and the tables read their ids from the batch.
2. model_fn runs on the activations that the tables look up. Checks watch it and its value.
3. The runner replicates the step of model_fn on all cores.
4. The tables are created under the names that model_fn has given them, and looked up.
5. The tables' optimizers update the rows by the gradients of all cores (`engine.update`).
6. The runner returns a step that does all of this.

Backends differ in two objects. A `TableStep` says where the tables are. Without a `TableStep`,
model_fn gets the input unchanged. A `Runner` says where the model runs.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.compat import custom_gradients, legacy_optimizers
from estimator_emb.compat.internals.estimators import AnyTPUEstimatorSpec
from estimator_emb.compat.internals.graphs import fn_args
from estimator_emb.engine.cores import Cores
from estimator_emb.engine.engine import PendingLookup, TableStep
from estimator_emb.engine.tables import scopes
from estimator_emb.engine.tables.column_reads import ColumnReads
from estimator_emb.guards.checks.program_checks import takes
from estimator_emb.guards.events import ModelBatch
from estimator_emb.guards.watching import WatchedGraph
from estimator_emb.reporting import console


@dataclasses.dataclass(frozen=True)
class Replicas:
    """The step of model_fn on all cores.

    Attributes:
      spec: the value that model_fn returned, with tensors that a session can run.
      losses: the loss of each core. Empty if there is only the loss of `spec`.
      gradients: as in `LiveTables.apply_gradients`.
      has_tables: False if the step is only described, and its graph has no tables.
    """

    spec: Any
    losses: Sequence[tf.Tensor]
    gradients: Any = None
    has_tables: bool = True


class Runner:
    """Base class that runs a model_fn once in `graph`. `cores` share its batch.

    Attributes:
      divides: whether each core takes its own part of a batch, and tables read the ids of all.
    """

    divides = False

    def __init__(self, graph: WatchedGraph, cores: Cores):
        self.graph = graph
        self.cores = cores

    def says(self) -> str | None:
        """Returns a line to log before training, or None."""
        return None

    def feed(self, tables: TableStep | None) -> ModelBatch:
        """Returns a batch."""
        raise NotImplementedError

    def check(self, batch: ModelBatch, pending: PendingLookup | None) -> None:
        """Raises an error for a batch that the cores refuse. `pending` has the ids of tables."""

    def running(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context in which model_fn sees the same state as on its device."""
        return contextlib.nullcontext()

    def call(self, batch: ModelBatch) -> Any:
        """Calls model_fn and returns its result."""
        raise NotImplementedError

    def replicate(self, spec: Any, pending: PendingLookup | None) -> Replicas:
        """Returns the step of model_fn on all cores."""
        return Replicas(spec, losses=())

    def step(self, spec: Any, after: Any) -> Any:
        """Returns the step for the spec of `replicate`.

        `after` is an op or tensor that the step must run too, or None. In training, it updates the
        tables. In evaluation, it fails for a bad batch.
        """
        if after is not None and self.graph.call.training:
            return spec._replace(train_op=tf.group(spec.train_op, after))
        if after is None or getattr(spec, "loss", None) is None:
            return spec
        with tf.control_dependencies([after]):
            return spec._replace(loss=tf.identity(spec.loss))


class ThisGraph(Runner):
    """Runs a model_fn once in the default graph, on a batch from tensorflow-estimator.

    `kwargs` holds model_fn's arguments except features. Labels are optional.
    """

    def __init__(
        self,
        graph: WatchedGraph,
        model_fn: Callable[..., Any],
        features: Any,
        kwargs: dict[str, Any],
    ):
        super().__init__(graph, Cores())
        self._model_fn = model_fn
        self._given = features, kwargs.get("labels")
        self._kwargs = kwargs

    def feed(self, tables: TableStep | None) -> ModelBatch:
        return ModelBatch(*self._given)

    def call(self, batch: ModelBatch) -> Any:
        kwargs = self._kwargs
        if "labels" in kwargs:
            kwargs = {**kwargs, "labels": batch.labels}
        model_fn = self._model_fn
        if tf.distribute.has_strategy():  # A strategy converts what its replicas call.
            autograph = tf.__internal__.autograph
            model_fn = autograph.tf_convert(model_fn, autograph.control_status_ctx())
        return model_fn(features=batch.seen, **kwargs)


def drive(runner: Runner, tables: TableStep | None) -> Any:
    """Feeds a batch, runs model_fn on it, trains its tables, and returns the step of all this."""
    graph = runner.graph
    call = graph.call
    if call.training:
        said = (runner.says(), tables.describe() if tables else None)
        for line in filter(None, said):
            console.say_once(line, call.model_dir)
    batch = runner.feed(tables)
    pending = None if tables is None else tables.enqueue(batch.looked_up)
    batch = _checked(runner, batch, pending)
    batch, reads = _with_activations(runner, batch, pending)
    with graph.model_runs(batch, runner.cores), runner.running(), reads:
        if call.has_spec:
            scopes.record()
        spec = runner.call(batch)
    replicas = runner.replicate(graph.model_returned(spec), pending)
    live = after = None
    if pending is not None and replicas.has_tables:
        live = pending.create_tables(replicas.spec)
        trained = call.training
        after = live.update(replicas.spec, replicas.gradients) if trained else live.checked
    graph.knows(replicas.losses, live)
    step = runner.step(replicas.spec, after)
    if isinstance(step, AnyTPUEstimatorSpec):
        # tensorflow-estimator keeps both on the class: those of the last spec that any thread made.
        calls = {"eval_metrics": step.eval_metrics, "host_call": step.host_call}
        step._host_calls = {name: call for name, call in calls.items() if call is not None}
    return step


def _checked(runner: Runner, batch: ModelBatch, pending: PendingLookup | None) -> ModelBatch:
    """Returns a batch that the runner accepts, with its number of samples if no cores divide it."""
    runner.check(batch, pending)
    if pending is None or runner.divides:
        return batch
    return dataclasses.replace(batch, samples=pending.static_batch)


def _with_activations(
    runner: Runner, batch: ModelBatch, pending: PendingLookup | None
) -> tuple[ModelBatch, contextlib.AbstractContextManager[Any]]:
    """Returns the batch that model_fn gets, and a context in which feature columns read it."""
    if pending is None:
        return batch, contextlib.nullcontext()
    tables, ids = pending.step, {}
    if not runner.divides:  # Cores have taken the previous batch, and read no ids.
        ids = batch.looked_up
        features, labels = tables.from_previous_step((batch.features, batch.labels))
        batch = dataclasses.replace(batch, features=features, labels=labels)
    columns = ColumnReads(
        tables.tables, pending.features, ids, pending.again, tables.from_previous_step
    )
    return dataclasses.replace(batch, activations=columns.features), columns.running()


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


def build(graph: WatchedGraph, model_fn: Callable[[], Any]) -> Any:
    """Builds the default graph, and returns its complete `EstimatorSpec`.

    `model_fn` takes no arguments and drives the program's model_fn.
    """
    graph.begins()
    with custom_gradients.ending_with_graph(), legacy_optimizers.made():
        spec = model_fn()
    return graph.completed(spec)
