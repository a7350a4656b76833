"""Leaves hooks that save, summarize or log to the chief of several hosts."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.guards.guard import Call, Guard, Runs

_train = tf.compat.v1.train
_OF_CHIEF = (
    _train.CheckpointSaverHook,
    _train.LoggingTensorHook,
    _train.ProfilerHook,
    _train.StepCounterHook,
    _train.SummarySaverHook,
)


class ChiefHooks(Guard):
    """Removes these hooks of a program from the trainings of the other hosts."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.training and call.runs is Runs.PJRT

    def training(
        self, spec: Any, worker_hooks: Sequence[Any], hooks: Sequence[Any]
    ) -> tuple[Any, Sequence[Any]]:
        if self.call.host == 0:
            return spec, hooks
        names = ("training_hooks", "training_chief_hooks")
        spec = spec._replace(**{name: tuple(_kept(getattr(spec, name))) for name in names})
        return spec, _kept(hooks)


def _kept(hooks: Sequence[Any]) -> list[Any]:
    return [one for one in hooks if not isinstance(one, _OF_CHIEF)]
