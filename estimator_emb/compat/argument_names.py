# SPDX-License-Identifier: Apache-2.0
"""Makes classes of tensorflow-estimator suggest the argument that a misspelt one may stand for."""

from estimator_emb.messages import arguments
from estimator_emb.private.estimator import (
    Estimator,
    EstimatorSpec,
    EvalSpec,
    LocalRunConfig,
    TrainSpec,
)
from estimator_emb.private.tpu_estimator import StockRunConfig, StockTPUConfig, TPUEstimatorSpec


def install() -> None:
    """Makes classes that programs construct check their arguments, if they do not already."""
    inherited = LocalRunConfig.__init__
    arguments.suggest_in(StockRunConfig, "__init__", inherited)
    arguments.suggest_in(LocalRunConfig, "__init__")
    arguments.suggest_in(StockTPUConfig, "__new__")
    arguments.suggest_in(TPUEstimatorSpec, "__new__")
    arguments.suggest_in(EstimatorSpec, "__new__")
    arguments.suggest_in(Estimator, "__init__")
    for method in ("train", "evaluate", "predict", "export_saved_model"):
        arguments.suggest_in(Estimator, method)
    arguments.suggest_in(TrainSpec, "__new__")
    arguments.suggest_in(EvalSpec, "__new__")
