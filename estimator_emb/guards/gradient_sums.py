"""Warns about gradients that are not summed over the cores of an emulated TPU."""

from typing import Any

from estimator_emb.guards.checks import unsummed
from estimator_emb.guards.guard import Call, Guard
from estimator_emb.reporting.console import logger
from estimator_emb.reporting.text_columns import some_of


class GradientSums(Guard):
    """Finds variables that are trained without a CrossShardOptimizer."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.on_cores and call.training

    def after(self, spec: Any) -> Any:
        cores = self.graph.cores
        if cores.count == 1 or getattr(spec, "train_op", None) is None:
            return spec
        exchanged = [one.output for one in cores.collectives]
        names = unsummed.unsummed(spec.train_op, cores.inputs.values(), exchanged)
        if not names:
            return spec
        logger.warning(
            "%d cores share the batch, and the gradients of %s are not summed over them: what "
            "every core but core 0 has learned is lost. Use %s; with an optimizer that is not of "
            "tf.compat.v1.train, sum each gradient by tf.compat.v1.tpu.cross_replica_sum.",
            cores.count,
            some_of(names),
            unsummed.REMEDY,
        )
        return spec
