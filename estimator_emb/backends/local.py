"""Runs the model and its tables in this process or a cluster, as with `use_tpu=False`."""

import contextlib
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.backends import driver, host_tables
from estimator_emb.backends.base import Backend, EstimatorRequest, Function
from estimator_emb.compat.internals.graphs import fn_args
from estimator_emb.compat.internals.tpu_estimator import (
    StockRunConfig,
    TPUContext,
    add_item_to_params,
)
from estimator_emb.engine.engine import TableStep
from estimator_emb.guards.call import Runs
from estimator_emb.guards.checks import clusters, program_checks
from estimator_emb.guards.checks.program_checks import takes
from estimator_emb.guards.events import ModelBatch
from estimator_emb.guards.watching import WatchedGraph
from estimator_emb.spec.resolved import with_own_keys

HOST_DEVICE = "/device:CPU:0"


class LocalBackend(Backend):
    """Runs without a TPU, in this process or in the cluster that TF_CONFIG describes."""

    runs = Runs.LOCAL

    def __init__(self, request: EstimatorRequest):
        clusters.check_no_strategy(request.config, request.spec is not None, emulated=False)
        super().__init__(request)
        self.tables = host_tables.HostTables(request)

    def constructor_arguments(self) -> dict[str, Any]:
        has_spec = self.request.spec is not None
        config = clusters.checked(with_steps_logged(self.request), has_spec)
        return off_tpu(self.request, config, exports_to_tpu=not has_spec)

    def attach(self, estimator: Any) -> None:
        host_tables.serve(estimator.config, self.request)

    def input_fn(self, input_fn: Function, graph: WatchedGraph, context: Any) -> Function:
        input_fn = checked_input_fn(self.request, input_fn, graph, batches_ahead=1)
        return input_fn if self.request.spec is None else with_context(input_fn)

    def model_fn(self, estimator: Any, augment: Function) -> Function:
        model_fn = self.request.model_fn

        def run(features: Any, mode: str, kwargs: dict[str, Any]) -> Any:
            runner = OneCore(estimator.watched(mode), model_fn, features, kwargs)
            place = self.tables.in_process(runner.graph.call, estimator.config)
            return driver.drive(runner, self.tables.step(runner, place))

        return augment(driver.driven(model_fn, run), self.request.batch_axis)


def with_steps_logged(request: EstimatorRequest) -> Any:
    """Returns a request's `RunConfig`, without step logging if the batch size is invalid."""
    config = request.config
    is_sized = program_checks.is_batch_size(request.train_batch_size)
    if not is_sized and isinstance(config, StockRunConfig):
        # tensorflow-estimator multiplies by the batch size to log examples per second.
        return config.replace(log_step_count_steps=None)
    return config


def off_tpu(request: EstimatorRequest, config: Any, exports_to_tpu: bool) -> dict[str, Any]:
    """Returns the arguments to change in tensorflow-estimator's constructor off a TPU.

    Pass `exports_to_tpu=False` if the graph for TPUs needs ops that only a TPU has. The graph for
    CPU is then exported instead.
    """
    arguments = {
        "eval_on_tpu": request.eval_on_tpu and request.use_tpu,
        "config": config,
        "embedding_config_spec": None,
    }
    if not exports_to_tpu:
        arguments["export_to_tpu"] = False
        arguments["export_to_cpu"] = request.export_to_cpu or request.export_to_tpu
    return arguments


def checked_input_fn(
    request: EstimatorRequest, input_fn: Function, graph: WatchedGraph, batches_ahead: int
) -> Function:
    """Returns an input_fn that is checked, with extra batches if lookups run a step ahead."""
    spec = request.spec
    input_fn = program_checks.checked_input_fn(input_fn, graph.input_returned)
    if spec and spec.pipeline_execution_with_tensor_core and graph.call.training:
        input_fn = with_one_more(input_fn, batches_ahead)
    return input_fn


class OneCore(driver.ThisGraph):
    """Runs a model_fn on the whole batch, like a TPU with a single core."""

    def feed(self, tables: TableStep | None) -> ModelBatch:
        if tables is None:
            return super().feed(tables)
        features, labels = self._given
        params = self._kwargs.get("params")
        if params is not None and not self.graph.call.exporting:
            add_item_to_params(params, "context", HostContext(call_from_input_fn=False))
        features = looked_up = with_own_keys(tables.tables, features)
        if isinstance(features, Mapping):
            features = {key: one for key, one in features.items() if key not in tables.replaced}
        return ModelBatch(features, labels, looked_up=looked_up)

    def running(self) -> contextlib.AbstractContextManager[Any]:
        return self.cores.running(shard_context=self.graph.call.has_spec)


class HostContext(TPUContext):
    """The value of `params['context']` off a TPU: a single host with a single core.

    As on a TPU, some members work only in input_fn (`call_from_input_fn`), others in model_fn.
    """

    num_replicas = num_hosts = num_of_replicas_per_host = 1

    def __init__(self, call_from_input_fn: bool):
        super().__init__(internal_ctx=None, call_from_input_fn=call_from_input_fn, host_id=0)

    def current_input_fn_deployment(self) -> tuple[str, int, int, int]:
        """Returns (device, index of this input_fn call, number of calls, replicas it feeds)."""
        if not self._call_from_input_fn:
            raise RuntimeError("This TPUContext instance must not be called from model_fn.")
        return HOST_DEVICE, 0, 1, 1

    @property
    def device_assignment(self) -> None:
        if self._call_from_input_fn:
            raise RuntimeError("This TPUContext instance must not be called from input_fn.")

    def device_for_replica(self, replica_id: int) -> tuple[str, int]:
        return HOST_DEVICE, replica_id

    def tpu_host_placement_function(self, host_id: int) -> str:
        return HOST_DEVICE


def with_context(input_fn: Function) -> Function:
    """Returns an input_fn that puts a `HostContext` into `params` as 'context'."""

    def wrapped(**kwargs: Any) -> Any:
        if "params" in kwargs:
            context = HostContext(call_from_input_fn=True)
            add_item_to_params(kwargs["params"], "context", context)
        return input_fn(**kwargs)

    return takes(wrapped, fn_args(input_fn))


def with_one_more(input_fn: Function, batches: int) -> Function:
    """Returns an input_fn that repeats `batches` batches at the end, for steps that read ahead."""

    def wrapped(**kwargs: Any) -> Any:
        made = input_fn(**kwargs)
        return made.concatenate(made.take(batches)) if isinstance(made, tf.data.Dataset) else made

    return takes(wrapped, fn_args(input_fn))
