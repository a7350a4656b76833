"""A TPU that is emulated on the host: `use_tpu=True` and a request to emulate."""

import copy
from typing import Any, ClassVar

import tensorflow as tf

from estimator_emb.backends.base import EstimatorRequest, Function
from estimator_emb.backends.emulated import topology
from estimator_emb.backends.emulated.step import EmulatedStep
from estimator_emb.backends.emulated.topology import EmulatedTPU
from estimator_emb.backends.host import HostBackend
from estimator_emb.messages.console import logger
from estimator_emb.names.slices import Slice
from estimator_emb.private.tpu_estimator import InputPipelineConfig, StockRunConfig
from estimator_emb.spec import options
from estimator_emb.spec.config import EmbeddingConfigSpec

_WITHOUT_MEANING = (
    "experimental_allow_per_host_v2_parallel_get_next",
    "initial_infeed_sleep_secs",
    "tpu_job_name",
    "experimental_feed_hook",
    "num_cores_per_replica",
)
_said: set[str] = set()


class EmulatedBackend(HostBackend):
    """This process, in which the program sees a TPU of N cores, on one host or several.

    Exports, and evaluations with `eval_on_tpu=False`, run as with `use_tpu=False`.
    """

    emulates_tpu = True
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

    def input_fn(self, input_fn: Function, mode: str, context: Any) -> Function:
        # Each core's input is a batch behind.
        return self._checked_input_fn(input_fn, mode, context.num_replicas)

    def model_fn(self, estimator: Any, augment: Function) -> Function:
        model_fn = self._checked_model_fn(estimator)
        on_cpu = augment(self._on_one_core(estimator, model_fn), self.request.batch_axis)

        def for_tpu(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
            with estimator._ctx.with_mode(mode) as context:
                # Without an input, it is an export.
                if not estimator._is_input_fn_invoked or context.is_running_on_cpu():
                    return on_cpu(features, labels, mode, config, params)
                # As tensorflow-estimator does: `_call_input_fn` sets it, for this call only.
                estimator._is_input_fn_invoked = None
                step = self.step(self, context, config, params)
                # An input on this TPU is a function of the context of a core or host.
                spec = step.build(model_fn, features, estimator)
                estimator.current_call.lookup = step.lookup
                return spec

        return for_tpu


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
        if getattr(config.tpu_config, option) and option not in _said:
            _said.add(option)
            logger.info("TPUConfig: %s has no meaning where a TPU is emulated.", option)
    # The session is this process's, wherever the program's TPU would have been.
    config._master = config._evaluation_master = ""
    config._cluster_spec = tf.train.ClusterSpec({})
    return config
