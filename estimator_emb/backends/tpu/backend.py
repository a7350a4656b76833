# SPDX-License-Identifier: Apache-2.0
"""A TPU, driven by tensorflow-estimator, with the tables in its embedding hardware."""

from typing import Any

from estimator_emb.backends.base import Backend, EstimatorRequest, Function
from estimator_emb.backends.tpu import system
from estimator_emb.checks.program_checks import takes
from estimator_emb.private.graphs import fn_args
from estimator_emb.spec import options
from estimator_emb.tables import helper_variable


class TPUBackend(Backend):
    """A TPU v2, v3 or v4."""

    def __init__(self, request: EstimatorRequest):
        options.check_on_tpu(request.config)
        super().__init__(request)

    def attach(self, estimator: Any) -> None:
        if self.request.spec is not None and self.request.tables:
            system.use_hardware(estimator, self.request.spec, list(self.request.tables))

    def check_prediction(self) -> None:
        if self.request.tables:
            raise NotImplementedError(
                "predict: tensorflow-estimator looks up no embedding tables when it predicts on a "
                "TPU. Predict on the host, with a TPUEstimator of the same model_dir that has "
                "use_tpu=False or TPUConfig(device='host')."
            )

    def input_fn(self, input_fn: Function, mode: str, context: Any) -> Function:
        tables = list(self.request.tables)
        if not tables:
            return input_fn

        def in_forms_of_hardware(**kwargs: Any) -> Any:
            return system.as_hardware_reads(input_fn(**kwargs), tables)

        return takes(in_forms_of_hardware, fn_args(input_fn))

    def model_fn(self, estimator: Any, augment: Function) -> Function:
        return augment(self._recorded_model_fn(), self.request.batch_axis)

    def finish_graph(self) -> None:
        if self.request.tables:
            # tensorflow-estimator makes a helper variable for each table, to get gradients, and
            # keeps it out of checkpoints, but not its slots.
            helper_variable.hide(keep_trainable=True)
