"""Warns if a training has nothing to do because the model is already at `max_steps`."""

import contextlib
from typing import Any

from estimator_emb.compat.internals.estimators import step_of_latest_checkpoint
from estimator_emb.guards.guard import Call, Guard
from estimator_emb.reporting.console import logger


class ReachedSteps(Guard):
    """Compares `max_steps` with the step of the latest checkpoint."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.method == "train" and call.max_steps is not None

    def surround(self) -> contextlib.AbstractContextManager[Any]:
        model_dir, max_steps = self.call.model_dir, self.call.max_steps
        step = int(step_of_latest_checkpoint(model_dir))
        if 0 < max_steps <= step:
            logger.warning(
                "train: the model in %s is at step %d, so max_steps=%d is reached: nothing was "
                "trained. max_steps counts the steps of all trainings in a model_dir. Give a "
                "larger max_steps, or steps=... for that many more steps, or another model_dir.",
                model_dir,
                step,
                max_steps,
            )
        return super().surround()
