# SPDX-License-Identifier: Apache-2.0
"""Has the classes of tensorflow-estimator that programs construct name a misspelt argument."""

from estimator_emb.checks import arguments
from estimator_emb.compat.internals.estimator import (
    Estimator,
    EstimatorSpec,
    EvalSpec,
    LocalRunConfig,
    TrainSpec,
)
from estimator_emb.compat.internals.tpu_estimator import RunConfig, StockTPUConfig, TPUEstimatorSpec


def install() -> None:
    """Does so; a second call changes nothing."""
    of_run_config = LocalRunConfig.__init__
    arguments.suggest_in(RunConfig, "__init__", of_run_config)
    arguments.suggest_in(LocalRunConfig, "__init__")
    arguments.suggest_in(StockTPUConfig, "__new__")
    arguments.suggest_in(TPUEstimatorSpec, "__new__")
    arguments.suggest_in(EstimatorSpec, "__new__")
    arguments.suggest_in(Estimator, "__init__")
    for method in ("train", "evaluate", "predict", "export_saved_model"):
        arguments.suggest_in(Estimator, method)
    arguments.suggest_in(TrainSpec, "__new__")
    arguments.suggest_in(EvalSpec, "__new__")
