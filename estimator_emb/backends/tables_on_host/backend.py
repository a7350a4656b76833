# SPDX-License-Identifier: Apache-2.0
"""The backend of `TPUConfig(tables='host')`, and the options that it refuses."""

from typing import Any

from estimator_emb.backends.base import EstimatorRequest, Function, TableGraph
from estimator_emb.backends.host import HostTables, with_context
from estimator_emb.backends.tables_on_host.context import TPUWithoutTables
from estimator_emb.backends.tables_on_host.step import TablesOnHostStep
from estimator_emb.private.tpu_estimator import InputPipelineConfig, StockRunConfig
from estimator_emb.spec import options
from estimator_emb.spec.config import EmbeddingConfigSpec


class TablesOnHostBackend(HostTables):
    """A TPU v2, v3 or v4, whose host trains the tables.

    Exports, predictions, and evaluations with `eval_on_tpu=False` run as with `use_tpu=False`.
    """

    reads_ahead = True
    why_not_for_tpus = "with tables on the host"

    def __init__(self, request: EstimatorRequest):
        options.check_on_tpu(request.config)
        super().__init__(request)
        assert request.spec is not None
        _check(request.config, request.spec)

    def attach(self, estimator: Any) -> None:
        estimator._ctx = TPUWithoutTables(**self._of_context(estimator))

    def input_fn(self, input_fn: Function, mode: str, context: Any) -> Function:
        with context.with_mode(mode) as of_mode:
            return with_context(input_fn) if of_mode.is_running_on_cpu() else input_fn

    def model_fn(self, estimator: Any, augment: Function) -> Function:
        request, spec = self.request, self.request.spec
        assert spec is not None

        def build(context: Any, model_fn: Function, input_fn: Any, *given: Any) -> tuple[Any, Any]:
            step = TablesOnHostStep(
                context, spec, request.tables, model_fn, input_fn, request.batch_axis
            )
            with estimator._ctx.by_core():
                built = step.build(augment, *given)
            return TableGraph(step.lookup), built

        return self._for_tpu(estimator, augment, build)


def _check(config: Any, spec: EmbeddingConfigSpec) -> None:
    if not isinstance(config, StockRunConfig):
        return  # tensorflow-estimator says what is wrong.
    tpu, deployments = config.tpu_config, InputPipelineConfig
    deployment = tpu.per_host_input_for_training
    if deployment not in (deployments.PER_HOST_V1, deployments.PER_HOST_V2):
        raise ValueError(
            "TPUConfig: with tables='host', per_host_input_for_training must be PER_HOST_V1 or "
            f"PER_HOST_V2; got {deployment}."
        )
    if tpu.num_cores_per_replica:
        raise ValueError(
            "TPUConfig: with tables='host', each core runs the whole model, and "
            f"num_cores_per_replica must be None; got {tpu.num_cores_per_replica}."
        )
    if tpu.experimental_host_call_every_n_steps != 1:
        raise ValueError(
            "TPUConfig: with tables='host', gradients come out of the TPU in every step, and "
            "experimental_host_call_every_n_steps must be 1; got "
            f"{tpu.experimental_host_call_every_n_steps}."
        )
    if spec.pipeline_execution_with_tensor_core:
        raise ValueError(
            "EmbeddingConfigSpec: with TPUConfig(tables='host'), the lookup of a step waits for "
            "the update of the step before, and pipeline_execution_with_tensor_core must be False."
        )
