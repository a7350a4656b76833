# SPDX-License-Identifier: Apache-2.0
"""Names of tensorflow-estimator, but for its TPUEstimator.

Most are public as `tf.estimator.<name>`, which TensorFlow from 2.16 on lacks. Programs import from
`estimator_emb` what is imported here under its own name.
"""

from tensorflow_estimator.python.estimator import estimator as _estimator
from tensorflow_estimator.python.estimator import model_fn as _model_fn
from tensorflow_estimator.python.estimator import run_config as _run_config
from tensorflow_estimator.python.estimator import training as _training
from tensorflow_estimator.python.estimator.estimator import Estimator, VocabInfo, WarmStartSettings
from tensorflow_estimator.python.estimator.export.export import (
    ServingInputReceiver,
    TensorServingInputReceiver,
    build_parsing_serving_input_receiver_fn,
    build_raw_serving_input_receiver_fn,
)
from tensorflow_estimator.python.estimator.export.export_output import (
    ClassificationOutput,
    EvalOutput,
    ExportOutput,
    PredictOutput,
    RegressionOutput,
)
from tensorflow_estimator.python.estimator.exporter import (
    BestExporter,
    Exporter,
    FinalExporter,
    LatestExporter,
)
from tensorflow_estimator.python.estimator.mode_keys import ModeKeys
from tensorflow_estimator.python.estimator.model_fn import EstimatorSpec
from tensorflow_estimator.python.estimator.training import EvalSpec, TrainSpec

LocalRunConfig = _run_config.RunConfig
# Of which a `TPUEstimatorSpec` is a kind, whoever has replaced that class.
AnyTPUEstimatorSpec = _model_fn._TPUEstimatorSpec
LOSS_METRIC_KEY = _model_fn.LOSS_METRIC_KEY
stock_train_and_evaluate = _training.train_and_evaluate
# Runs `train_and_evaluate`; ours ends a cluster, and `estimator-emb check` takes its place.
TrainingExecutor = _training._TrainingExecutor
step_of_latest_checkpoint = _estimator._load_global_step_from_checkpoint_dir
