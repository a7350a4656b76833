# SPDX-License-Identifier: Apache-2.0
"""A TPU that is emulated on the host: `use_tpu=True` and a request to emulate."""

from typing import Any

from estimator_emb import options
from estimator_emb.backends.base import Function, Request
from estimator_emb.backends.emulated.context import EmulatedTPU
from estimator_emb.backends.emulated.step import EmulatedStep, Reporting
from estimator_emb.backends.host import HostBackend


class EmulatedBackend(HostBackend):
    """The host, on which the program sees a TPU of one host and N cores.

    What has no part in a TPU runs as with `use_tpu=False`: exports, and evaluations with
    `eval_on_tpu=False`.
    """

    emulates_tpu = True

    def __init__(self, request: Request):
        super().__init__(request)
        self._emulated_config = options.emulated_config(super()._config(), request.spec)

    def _config(self) -> Any:
        return self._emulated_config

    def attach(self, estimator: Any) -> None:
        request = self.request
        estimator._ctx = EmulatedTPU(
            estimator.config,
            train_batch_size=request.train_batch_size,
            eval_batch_size=request.eval_batch_size,
            predict_batch_size=request.predict_batch_size,
            eval_on_tpu=request.eval_on_tpu,
        )

    def input_fn(self, input_fn: Function, mode: str, context: Any) -> Function:
        # Each core's input is a batch behind.
        return self._checked_input_fn(input_fn, mode, context.config.tpu_config.num_shards or 1)

    def model_fn(self, estimator: Any, augment: Function) -> Function:
        request = self.request

        def build(
            context: Any,
            model_fn: Function,
            input_fn: Any,
            labels: Any,
            mode: str,
            config: Any,
            params: Any,
        ) -> tuple[EmulatedStep, Any]:
            # As tensorflow-estimator does: `_call_input_fn` sets it, for this call only.
            estimator._is_input_fn_invoked = None
            step = EmulatedStep(
                context,
                model_fn,
                input_fn,
                request.spec,
                request.tables,
                request.batch_axis,
                config,
                params,
                self._dropped(exporting=False),
            )
            return step, step.build(_reporting(estimator))

        return self._for_tpu(estimator, augment, build)


def _reporting(estimator: Any) -> Reporting:
    """Returns what tensorflow-estimator logs while an estimator trains."""
    counted = estimator._iterations_per_training_loop
    steps_per_call = counted.value if counted.unit == "count" else None
    return Reporting(estimator._log_every_n_steps, estimator._log_every_n_secs, steps_per_call)
