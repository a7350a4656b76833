"""A TPU that is emulated on the host: `use_tpu=True` and a request to emulate."""

import copy
from typing import Any, ClassVar

import tensorflow as tf

from estimator_emb.backends import driver
from estimator_emb.backends.base import EstimatorRequest, Function
from estimator_emb.backends.emulated import topology
from estimator_emb.backends.emulated.step import EmulatedStep
from estimator_emb.backends.emulated.topology import EmulatedTPU
from estimator_emb.backends.host import HostBackend
from estimator_emb.guards import watching
from estimator_emb.guards.guard import Runs
from estimator_emb.guards.watching import GraphGuards
from estimator_emb.messages import console
from estimator_emb.names.slices import Slice
from estimator_emb.native import choice
from estimator_emb.private.tpu_estimator import InputPipelineConfig, StockRunConfig
from estimator_emb.spec import options
from estimator_emb.spec.config import EmbeddingConfigSpec
from estimator_emb.step.engine import TableStep

_WITHOUT_MEANING = (
    "experimental_allow_per_host_v2_parallel_get_next",
    "initial_infeed_sleep_secs",
    "tpu_job_name",
    "experimental_feed_hook",
    "num_cores_per_replica",
)


class EmulatedBackend(HostBackend):
    """This process, in which the program sees a TPU of N cores, on one host or several.

    Exports, and evaluations with `eval_on_tpu=False`, run as with `use_tpu=False`.
    """

    emulates_tpu = True
    runs = Runs.EMULATED
    step: ClassVar[type[EmulatedStep]] = EmulatedStep

    def __init__(self, request: EstimatorRequest):
        super().__init__(request)
        self._emulated_config = config = _emulated(super()._config(), request.spec)
        if isinstance(config, StockRunConfig):
            self._shape = self._find_shape(config.tpu_config)

    def _config(self) -> Any:
        return self._emulated_config

    def _find_shape(self, tpu_config: Any) -> Slice:
        shape = topology.of_config(tpu_config)
        each = tpu_config.num_cores_per_replica or 1
        if self.request.spec is not None and shape.hosts > 1 and each > 1:
            raise options.CannotEmulate(
                "TPUConfig: num_cores_per_replica with embedding tables on several hosts cannot be "
                f"emulated; got {each} and {shape.hosts} hosts. Emulate one host, or give each "
                "replica one core."
            )
        return shape

    def attach(self, estimator: Any) -> None:
        names = ("train_batch_size", "eval_batch_size", "predict_batch_size", "eval_on_tpu")
        of_request = {name: getattr(self.request, name) for name in names}
        estimator._ctx = EmulatedTPU(shape=self._shape, config=estimator.config, **of_request)

    def input_fn(self, input_fn: Function, guards: GraphGuards, context: Any) -> Function:
        # Each core's input is a batch behind.
        return self._checked_input_fn(input_fn, guards, context.num_replicas)

    def model_fn(self, estimator: Any, augment: Function) -> Function:
        on_cpu = super().model_fn(estimator, augment)

        def for_tpu(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
            with estimator._ctx.with_mode(mode) as context:
                # Without an input, it is an export.
                if not estimator._is_input_fn_invoked or context.is_running_on_cpu():
                    return on_cpu(features, labels, mode, config, params)
                # As tensorflow-estimator does: `_call_input_fn` sets it, for this call only.
                estimator._is_input_fn_invoked = None
                guards = watching.guards_of(estimator.call_of(mode))
                # An input on this TPU is a function of the context of a core or host.
                step = self.step(self, estimator, guards, context, config, params, features)
                return driver.drive(step, self._tables_of_cores(guards, context))

        return for_tpu

    def _tables_of_cores(self, guards: GraphGuards, ctx: EmulatedTPU) -> TableStep | None:
        if self.request.spec is None:
            return None
        return TableStep(
            self.request.spec,
            self.request.tables,
            guards.call.training,
            cores=guards.cores,
            batch_size=ctx.global_batch_size,
            as_parts=True,
            dropped=self.dropped(exporting=False),
            kernels=choice.kernels_for,
            summarizes=self.summarizes,
        )


def _emulated(config: Any, spec: EmbeddingConfigSpec | None) -> Any:
    if not isinstance(config, StockRunConfig):
        return config  # tensorflow-estimator says what is wrong.
    shards = options.asked_shards()
    if shards:
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
    # The session is this process's, wherever the program's TPU would have been.
    config._master = config._evaluation_master = ""
    config._cluster_spec = tf.train.ClusterSpec({})
    return config
