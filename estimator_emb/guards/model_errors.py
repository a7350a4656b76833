"""Adds advice about a likely mistake to an error of a model_fn."""

import contextlib
import gc
import re
from collections.abc import Mapping
from typing import Any

from estimator_emb.compat.internals.estimators import EstimatorSpec
from estimator_emb.compat.internals.tpu_estimator import TPUEstimatorSpec
from estimator_emb.guards import wrong_optimizers
from estimator_emb.guards.guard import Call, Guard, ModelBatch
from estimator_emb.optimizers import OptimizationParameters
from estimator_emb.reporting import error_notes
from estimator_emb.reporting.suggestions import suggest, suggestion
from estimator_emb.spec.config import EmbeddingConfigSpec

_METHODS = ("minimize", "apply_gradients", "compute_gradients")
_OF_TENSORS = re.compile(r"\b(d?types?|shapes?|dimensions?|rank)\b", re.IGNORECASE)
"""Matches an error about the types or shapes of tensors."""


class ModelErrors(Guard):
    """Explains a missing feature, a wrong optimizer, and a missing EmbeddingConfigSpec."""

    @classmethod
    def applies(cls, call: Call) -> bool:
        return call.ours

    def around(self, batch: ModelBatch) -> contextlib.AbstractContextManager[Any]:
        return error_notes.explained(self._explain, batch.seen)

    def _explain(self, error: Exception, features: Any) -> None:
        if isinstance(error, KeyError):
            key = error.args[0] if len(error.args) == 1 else None
            is_name = isinstance(key, str) and key.isidentifier()
            if isinstance(features, Mapping) and is_name and key not in features:
                error.args = (
                    f"{key!r}. The features that model_fn is given are {sorted(features)}."
                    f"{suggestion(key, features)}",
                )
        elif isinstance(error, AttributeError):
            owner = getattr(error, "obj", None)
            if error.name in _METHODS and isinstance(owner, OptimizationParameters):
                error.args = (
                    f"{type(owner).__name__!r} object has no attribute {error.name!r}: it trains "
                    "embedding tables, as optimization_parameters of an EmbeddingConfigSpec. For "
                    "the other variables, use an optimizer of tf.compat.v1.train.",
                )
            elif error.name in _METHODS and type(owner).__module__.startswith("keras"):
                error.args = (
                    f"{type(owner).__name__!r} object has no attribute {error.name!r}. "
                    f"{wrong_optimizers.ADVICE}",
                )
        elif isinstance(error, (TypeError, ValueError)):
            may_lack_spec = not self.call.has_spec and _OF_TENSORS.search(str(error))
            if may_lack_spec and (ids := _looked_up_elsewhere(features)):
                error.args = (
                    f"{error} TPUEstimator was given no embedding_config_spec, so that model_fn "
                    f"gets features {ids} as input_fn yields them, not their activations: give it "
                    "the EmbeddingConfigSpec whose feature_to_config_dict has them.",
                )
            else:
                suggest(error, TPUEstimatorSpec, EstimatorSpec)


def _looked_up_elsewhere(features: Any) -> list[str]:
    """Returns the features that are also keys of an EmbeddingConfigSpec in the program."""
    if not isinstance(features, Mapping):
        return []
    made = (one for one in gc.get_objects() if issubclass(type(one), EmbeddingConfigSpec))
    keys = {key for spec in made for key in spec.feature_to_config_dict or ()}
    return sorted(keys.intersection(features))
