"""Emulates a TPU for programs that set `use_tpu=True` and request emulation."""

import copy
from typing import Any

import tensorflow as tf

from estimator_emb.backends import driver
from estimator_emb.backends.base import Backend, EstimatorRequest, Function
from estimator_emb.backends.emulated.copies import Executor
from estimator_emb.backends.emulated.emulated_step import CoresOfTPU
from estimator_emb.backends.emulated.topology import EmulatedContext
from estimator_emb.backends.local import (
    LocalBackend,
    checked_input_fn,
    off_tpu,
    with_steps_logged,
)
from estimator_emb.compat.internals.tpu_estimator import InputPipelineConfig, StockRunConfig
from estimator_emb.guards.checks import clusters
from estimator_emb.guards.watching import WatchedGraph
from estimator_emb.reporting import console
from estimator_emb.spec import options
from estimator_emb.spec.config import EmbeddingConfigSpec

_WITHOUT_MEANING = (
    "experimental_allow_per_host_v2_parallel_get_next",
    "initial_infeed_sleep_secs",
    "tpu_job_name",
    "experimental_feed_hook",
    "num_cores_per_replica",
)


class EmulatedTPU(Backend):
    """Shows the program a TPU with one or more hosts, and runs the program in this process.

    `executor` chooses the number of cores and runs the model on the cores. Exports run as with
    `use_tpu=False`, and so do evaluations with `eval_on_tpu=False`.
    """

    def __init__(self, request: EstimatorRequest, executor: Executor):
        clusters.check_no_strategy(request.config, request.spec is not None, emulated=True)
        super().__init__(request)
        self.runs = executor.runs
        self._local = LocalBackend(request)
        self._executor = executor
        clusters.check_alone()
        self._config = config = _emulated(with_steps_logged(request), request.spec)
        if isinstance(config, StockRunConfig):
            self._shape = executor.shape(config.tpu_config, request.spec is not None)
            self.host = executor.host
            self._config = self.host.quiet(config)

    def constructor_arguments(self) -> dict[str, Any]:
        return off_tpu(self.request, self._config, exports_to_tpu=False)

    def attach(self, estimator: Any) -> None:
        names = ("train_batch_size", "eval_batch_size", "predict_batch_size", "eval_on_tpu")
        of_request = {name: getattr(self.request, name) for name in names}
        estimator._ctx = EmulatedContext(
            shape=self._shape, config=estimator.config, host=self.host, **of_request
        )
        self._executor.prepare_session(estimator._session_config)

    def input_fn(self, input_fn: Function, graph: WatchedGraph, context: Any) -> Function:
        # With pipelined lookups, each core's input is a batch behind.
        return checked_input_fn(self.request, input_fn, graph, context.num_replicas)

    def model_fn(self, estimator: Any, augment: Function) -> Function:
        on_cpu = self._local.model_fn(estimator, augment)

        def for_tpu(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
            with estimator._ctx.with_mode(mode) as context:
                # Only an export builds model_fn without an input.
                if not estimator._is_input_fn_invoked or context.is_running_on_cpu():
                    return on_cpu(features, labels, mode, config, params)
                # tensorflow-estimator also resets this flag here. `_call_input_fn` sets it again.
                estimator._is_input_fn_invoked = None
                graph = estimator.watched(mode)
                # Here `features` is a function that takes the context of a core or host.
                cores = CoresOfTPU(
                    graph, self._executor, estimator, context, config, params, features
                )
                tables = self._local.tables.step(cores, cores.place, context.own_batch_size)
                return driver.drive(cores, tables)

        return for_tpu


def _emulated(config: Any, spec: EmbeddingConfigSpec | None) -> Any:
    if not isinstance(config, StockRunConfig):
        return config  # tensorflow-estimator's constructor rejects it.
    shards = options.asked_shards()
    # 1 is the default, and tensorflow-estimator warns about it as an argument.
    if shards and (shards > 1 or config.tpu_config.num_shards is not None):
        config = config.replace(tpu_config=config.tpu_config._replace(num_shards=shards))
    else:
        config = copy.deepcopy(config)
    deployment = config.tpu_config.per_host_input_for_training
    of_embedding = (InputPipelineConfig.PER_HOST_V1, InputPipelineConfig.PER_HOST_V2)
    if spec is not None and deployment not in of_embedding:
        raise ValueError(
            "Only PER_HOST_V1 and PER_HOST_V2 is supported when using TPU Embedding; got "
            f"{deployment}."
        )
    for option in _WITHOUT_MEANING:
        if getattr(config.tpu_config, option):
            console.say_once(f"TPUConfig: {option} has no meaning where a TPU is emulated.")
    # The session runs in this process, so ignore the address of the program's TPU.
    config._master = config._evaluation_master = ""
    config._cluster_spec = tf.train.ClusterSpec({})
    return config
