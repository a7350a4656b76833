"""Rejects a model_fn that cannot receive the batch size."""

from estimator_emb.compat.internals.graphs import fn_args
from estimator_emb.engine.tables.functions import name_of
from estimator_emb.guards.guard import Call, Guard


class TakesParams(Guard):
    """Raises tensorflow-estimator's error if model_fn has no `params` for the batch size."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours and not call.exporting and call.batch_size is not None

    def calling(self) -> None:
        model_fn = self.call.model_fn
        if "params" not in fn_args(model_fn):
            raise ValueError(
                f"model_fn ({name_of(model_fn)}) does not include params argument, required by "
                "TPUEstimator to pass batch size as params['batch_size']."
            )
