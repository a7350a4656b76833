"""The model and its tables on the host, alone or in a cluster, as with `use_tpu=False`."""

import contextlib
import dataclasses
import functools
from typing import Any

import tensorflow as tf

from estimator_emb.backends import driver
from estimator_emb.backends.base import Backend, EstimatorRequest, Function
from estimator_emb.checks import clusters, program_checks
from estimator_emb.checks.program_checks import takes
from estimator_emb.guards import watching
from estimator_emb.guards.guard import ModelBatch, Runs
from estimator_emb.guards.watching import GraphGuards
from estimator_emb.messages.console import logger
from estimator_emb.native import choice, serving
from estimator_emb.private.graphs import fn_args
from estimator_emb.private.tpu_estimator import StockRunConfig, TPUContext, add_item_to_params
from estimator_emb.spec import options
from estimator_emb.spec.resolved import check_for_host, with_own_keys
from estimator_emb.step.cores import Cores
from estimator_emb.step.dropped import DroppedIds
from estimator_emb.step.engine import GradientTap, TableStep
from estimator_emb.step.kernels import TensorFlowKernels

HOST_DEVICE = "/device:CPU:0"


class HostBackend(Backend):
    """This process, or the cluster that TF_CONFIG describes, without a TPU."""

    runs = Runs.LOCAL

    def __init__(self, request: EstimatorRequest):
        super().__init__(request)
        self._drops_ids = options.asked_bad_ids(request.config) == "drop"
        self.summarizes = options.table_summaries_on_host(request.config)
        if request.spec is not None:
            check_for_host(request.spec, request.tables)

    @property
    def _without_tpu_graph(self) -> bool:
        """True if a graph for TPUs would hold ops that only a TPU's own graph can have."""
        return self.emulates_tpu or self.request.spec is not None

    def constructor_arguments(self) -> dict[str, Any]:
        request = self.request
        arguments = {
            **super().constructor_arguments(),
            "config": self._config(),
            "embedding_config_spec": None,
        }
        if self._without_tpu_graph:
            arguments["export_to_tpu"] = False
            arguments["export_to_cpu"] = request.export_to_cpu or request.export_to_tpu
        return arguments

    def _config(self) -> Any:
        config = self.request.config
        size = self.request.train_batch_size
        if not program_checks.is_batch_size(size) and isinstance(config, StockRunConfig):
            # tensorflow-estimator's log of examples per second multiplies by it.
            config = config.replace(log_step_count_steps=None)
        return clusters.checked(config, self.request.spec is not None, self.emulates_tpu)

    def attach(self, estimator: Any) -> None:
        serving.load(estimator.config, self.request.tables, self.request.spec)

    def log_export(self) -> None:
        if self.request.export_to_tpu and self._without_tpu_graph:
            logger.info("export_to_tpu: off a TPU, only the metagraph for CPU is written.")

    def input_fn(self, input_fn: Function, guards: GraphGuards, context: Any) -> Function:
        input_fn = self._checked_input_fn(input_fn, guards, batches_ahead=1)
        return input_fn if self.request.spec is None else with_context(input_fn)

    def _checked_input_fn(
        self, input_fn: Function, guards: GraphGuards, batches_ahead: int
    ) -> Function:
        spec = self.request.spec
        input_fn = program_checks.checked_input_fn(input_fn, guards.returned)
        if spec and spec.pipeline_execution_with_tensor_core and guards.call.training:
            input_fn = with_one_more(input_fn, batches_ahead)
        return input_fn

    def model_fn(self, estimator: Any, augment: Function) -> Function:
        model_fn = self.request.model_fn

        def run(features: Any, mode: str, kwargs: dict[str, Any]) -> Any:
            guards = watching.guards_of(estimator.call_of(mode))
            runner = ThisGraph(guards, model_fn, features, kwargs)
            return driver.drive(runner, self._tables(guards, estimator.config))

        return augment(driver.driven(model_fn, run), self.request.batch_axis)

    def _tables(self, guards: GraphGuards, config: Any) -> TableStep | None:
        """Returns the tables in this process, or on the parameter servers of its cluster."""
        call = guards.call
        if self.request.spec is None:
            return None
        if call.training and call.float16 is not None:
            raise ValueError(
                "TPUConfig: serving_tables='float16' exports no graph that trains: optimizers need "
                "float32 tables. Export without ModeKeys.TRAIN, or leave serving_tables out."
            )
        servers = () if call.exporting else serving.addresses(config)
        choose = functools.partial(choice.kernels_for, servers=servers)
        return TableStep(
            self.request.spec,
            self.request.tables,
            call.training,
            guards.cores,
            shards=max(len(servers), 1),
            dropped=self.dropped(call.exporting),
            kernels=TensorFlowKernels if call.exporting else choose,
            look_up_integers=True,
            summarizes=self.summarizes,
            in_this_process=not servers,
            dtype=tf.float32 if call.float16 is None else tf.float16,
        )

    def dropped(self, exporting: bool) -> DroppedIds | None:
        return DroppedIds(count=not exporting) if self._drops_ids else None


class ThisGraph(driver.Runner):
    """Runs a model_fn for a whole batch, as one core would."""

    def __init__(
        self, guards: GraphGuards, model_fn: Function, features: Any, kwargs: dict[str, Any]
    ):
        super().__init__(guards, Cores())
        self._model_fn = model_fn
        self._given = features, kwargs.get("labels")
        self._kwargs = kwargs

    def read(self, tables: TableStep | None) -> tuple[ModelBatch, GradientTap | None, Any]:
        features, labels = self._given
        if tables is None:
            return ModelBatch(features, labels, given=self._given), None, {}
        params = self._kwargs.get("params")
        if params is not None and not self.guards.call.exporting:
            add_item_to_params(params, "context", HostContext(call_from_input_fn=False))
        features = with_own_keys(tables.tables, features)
        tap = tables.enqueue(features)
        batch = ModelBatch(
            {key: value for key, value in features.items() if key not in tables.replaced},
            labels,
            samples=None if self.guards.call.exporting else tap.reading.batch.samples,
            static_samples=tap.reading.static_batch,
            given=(features, labels),
        )
        return batch, tap, features

    def carried(self, batch: ModelBatch, tables: TableStep) -> ModelBatch:
        features, labels = tables.from_previous_step((batch.features, batch.labels))
        return dataclasses.replace(batch, features=features, labels=labels)

    def running(self) -> contextlib.AbstractContextManager[Any]:
        return self.cores.running(shard_context=self.guards.call.has_spec)

    def call(self, batch: ModelBatch) -> Any:
        kwargs = self._kwargs
        if "labels" in kwargs:
            kwargs = {**kwargs, "labels": batch.labels}
        return self._model_fn(features=batch.seen, **kwargs)

    def step(self, spec: Any, tap: GradientTap | None) -> Any:
        if tap is None:
            return spec
        self.guards.lookup = lookup = tap.create_tables(spec)
        spec = lookup.after_checks(spec)
        if self.guards.call.training and getattr(spec, "train_op", None) is not None:
            spec = spec._replace(train_op=tf.group(spec.train_op, lookup.apply_gradients()))
        return spec


class HostContext(TPUContext):
    """`params['context']` on the host: one host with one core.

    As on a TPU, some members are for an input_fn only (`call_from_input_fn`), some for a model_fn.
    """

    num_replicas = num_hosts = num_of_replicas_per_host = 1

    def __init__(self, call_from_input_fn: bool):
        super().__init__(
            internal_ctx=None,
            input_device=HOST_DEVICE,
            invocation_index=0,
            call_from_input_fn=call_from_input_fn,
            host_id=0,
        )

    def current_input_fn_deployment(self) -> tuple[str, int, int, int]:
        """(device, index of this input_fn call, number of calls, replicas fed by this call)."""
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
    """Returns an input_fn for the host, whose `params` have a 'context'."""

    def wrapped(**kwargs: Any) -> Any:
        if "params" in kwargs:
            context = HostContext(call_from_input_fn=True)
            add_item_to_params(kwargs["params"], "context", context)
        return input_fn(**kwargs)

    return takes(wrapped, fn_args(input_fn))


def with_one_more(input_fn: Function, batches: int) -> Function:
    """Returns an input_fn whose dataset ends `batches` later, for steps that read batches ahead."""

    def wrapped(**kwargs: Any) -> Any:
        made = input_fn(**kwargs)
        return made.concatenate(made.take(batches)) if isinstance(made, tf.data.Dataset) else made

    return takes(wrapped, fn_args(input_fn))
