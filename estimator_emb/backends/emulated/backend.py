# SPDX-License-Identifier: Apache-2.0
"""A TPU that is emulated on the host: `use_tpu=True` and a request to emulate."""

import copy
import logging
from typing import Any

import tensorflow as tf

from estimator_emb.backends.base import EstimatorRequest, Function
from estimator_emb.backends.emulated import topology
from estimator_emb.backends.emulated.context import EmulatedTPU
from estimator_emb.backends.emulated.step import EmulatedStep
from estimator_emb.backends.host import HostBackend
from estimator_emb.private.tpu_estimator import InputPipelineConfig, StockRunConfig
from estimator_emb.spec import options
from estimator_emb.spec.config import EmbeddingConfigSpec

logger = logging.getLogger("estimator_emb")

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

    def __init__(self, request: EstimatorRequest):
        super().__init__(request)
        self._emulated_config = _emulated(super()._config(), request.spec)

    def _config(self) -> Any:
        return self._emulated_config

    def attach(self, estimator: Any) -> None:
        estimator._ctx = EmulatedTPU(**self._of_context(estimator))

    def input_fn(self, input_fn: Function, mode: str, context: Any) -> Function:
        # Each core's input is a batch behind.
        return self._checked_input_fn(input_fn, mode, context.num_replicas)

    def model_fn(self, estimator: Any, augment: Function) -> Function:
        def build(context: Any, model_fn: Function, input_fn: Any, *given: Any) -> tuple[Any, Any]:
            _, _, config, params = given
            # As tensorflow-estimator does: `_call_input_fn` sets it, for this call only.
            estimator._is_input_fn_invoked = None
            dropped = self._dropped(exporting=False)
            step = EmulatedStep(context, self.request, config, params, dropped, self._summarizes)
            spec = step.build(model_fn, input_fn, estimator)
            return step.graph, spec

        return self._for_tpu(estimator, augment, build)


def _emulated(config: Any, spec: EmbeddingConfigSpec | None) -> Any:
    if not isinstance(config, StockRunConfig):
        return config  # tensorflow-estimator says what is wrong.
    shards = options.asked_shards()
    shape = topology.of_config(config.tpu_config)
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
    if spec is not None and shape.hosts > 1 and (config.tpu_config.num_cores_per_replica or 1) > 1:
        raise options.CannotEmulate(
            "TPUConfig: num_cores_per_replica with embedding tables on several hosts cannot be "
            f"emulated; got {config.tpu_config.num_cores_per_replica} and {shape.hosts} hosts. "
            "Emulate one host, or give each replica one core."
        )
    for option in _WITHOUT_MEANING:
        if getattr(config.tpu_config, option) and option not in _said:
            _said.add(option)
            logger.info("TPUConfig: %s has no meaning where a TPU is emulated.", option)
    # The session is this process's, wherever the program's TPU would have been.
    config._master = config._evaluation_master = ""
    config._cluster_spec = tf.train.ClusterSpec({})
    return config
