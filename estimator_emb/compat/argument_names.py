# SPDX-License-Identifier: Apache-2.0
"""Has the classes of tensorflow-estimator that programs construct name a misspelt argument."""

from tensorflow_estimator.python.estimator import estimator, model_fn, run_config, training
from tensorflow_estimator.python.estimator.tpu import tpu_config, tpu_estimator

from estimator_emb import arguments


def install() -> None:
    """Does so; a second call changes nothing."""
    of_run_config = run_config.RunConfig.__init__
    arguments.suggest_in(tpu_config.RunConfig, "__init__", of_run_config)
    arguments.suggest_in(run_config.RunConfig, "__init__")
    arguments.suggest_in(tpu_config.TPUConfig, "__new__")
    arguments.suggest_in(tpu_estimator.TPUEstimatorSpec, "__new__")
    arguments.suggest_in(model_fn.EstimatorSpec, "__new__")
    arguments.suggest_in(estimator.Estimator, "__init__")
    for method in ("train", "evaluate", "predict", "export_saved_model"):
        arguments.suggest_in(estimator.Estimator, method)
    arguments.suggest_in(training.TrainSpec, "__new__")
    arguments.suggest_in(training.EvalSpec, "__new__")
