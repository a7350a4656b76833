"""Logs where a plain Estimator trains and how many variables it trains."""

import contextlib
from typing import Any

import tensorflow as tf

from estimator_emb.guards.guard import Call, Guard, Runs
from estimator_emb.reporting import console
from estimator_emb.reporting.text_columns import counted


class TrainingPlace(Guard):
    """Logs where it trains, once per `model_dir`. For a `TPUEstimator`, the backend does so."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.method == "train" and call.runs is Runs.PLAIN

    def surround(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext([_PlaceLog(self.call)])


class _PlaceLog(tf.compat.v1.train.SessionRunHook):
    def __init__(self, call: Call):
        self._call = call

    def begin(self) -> None:
        variables = tf.compat.v1.trainable_variables()
        size = sum(variable.shape.num_elements() or 0 for variable in variables)
        counts = f"{counted(len(variables), 'variable')}, {counted(size, 'parameter')}"
        name, place = self._call.estimator.removesuffix("V2"), _place(self._call.config)
        console.say_once(f"{name} trains on {place}: {counts}.", self._call.model_dir)


def _place(config: Any) -> str:
    strategy = config.train_distribute
    if strategy is not None:
        replicas = counted(strategy.num_replicas_in_sync, "replica")
        return f"{replicas} of a {type(strategy).__name__}"
    place = "a GPU" if tf.config.list_physical_devices("GPU") else "the CPU"
    servers = config.num_ps_replicas
    return f"{place}, beside {counted(servers, 'parameter server')}" if servers else place
