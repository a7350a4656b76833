"""Names the features and labels that make the loss of a step NaN or infinite.

The inputs are checked only if a step's loss is not finite. So a model may mask missing values that
are NaN, and other steps cost nothing. A training step with such inputs ends before it writes
anything. An evaluation changes nothing, so it only logs a warning.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.engine.ordering import after_checks
from estimator_emb.guards.checks import non_finite
from estimator_emb.guards.guard import Call, Guard
from estimator_emb.guards.nan_loss import NanInputError
from estimator_emb.reporting.console import logger


class NanInputs(Guard):
    """Checks the inputs of a step if its loss is not finite."""

    _error: NanInputError | None = None
    """The error that ended the step."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.in_session and not call.exporting

    def complete(self, spec: Any) -> Any:
        # Ops that prepare the next step do not wait for this step's loss.
        kept = self.graph.ahead.kept if self.graph.ahead else None
        losses = self.graph.losses_of(spec)
        inputs = non_finite.FloatInputs(self.graph)
        if not losses or not inputs.names or not losses[0].dtype.is_floating:
            return spec
        training = self.call.training

        def look(step: Any, *values: Any) -> np.bool_:
            is_nan = np.isnan(np.array(values[: len(losses)], np.float64)).any()
            # NaN among the inputs does not make a loss infinite.
            bad = non_finite.not_finite if is_nan else np.isinf
            lines = inputs.lines(values[len(losses) :], bad)
            if lines and self._error is None:
                where = f"in an evaluation after step {step}: a batch has"
                if training:
                    where = f"during training: step {step + 1} wrote nothing, for its batch has"
                begin = f"{'NaN' if is_nan else 'Infinite'} loss {where}"
                self._error = NanInputError([*lines, non_finite.REMEDY], begin)
                if training:
                    raise ValueError(str(self._error))
                logger.warning("%s", self._error)
            return np.bool_(True)

        with tf.name_scope("check_inputs"), tf.device("/cpu:0"):
            step = tf.identity(tf.compat.v1.train.get_global_step())
            given = [step, *losses, *inputs.tensors]
            good = tf.cond(
                tf.reduce_all([tf.reduce_all(tf.math.is_finite(loss)) for loss in losses]),
                lambda: tf.constant(True),
                lambda: tf.numpy_function(look, given, tf.bool),
            )
        updates = [update for _, update in (spec.eval_metric_ops or {}).values()]
        after_checks.wait([spec.train_op, spec.loss, *updates], good, kept)
        if training:
            return spec
        with tf.control_dependencies([good]):
            return spec._replace(loss=tf.identity(spec.loss))

    def explain(self, error: Exception) -> Exception | None:
        return self._error
