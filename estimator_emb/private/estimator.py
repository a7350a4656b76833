# SPDX-License-Identifier: Apache-2.0
"""Names of tensorflow-estimator, but for its TPUEstimator.

Most are public as `tf.estimator.<name>`, which TensorFlow from 2.16 on lacks.
"""

from tensorflow_estimator.python.estimator import estimator as _estimator
from tensorflow_estimator.python.estimator import exporter as _exporter
from tensorflow_estimator.python.estimator import mode_keys as _mode_keys
from tensorflow_estimator.python.estimator import model_fn as _model_fn
from tensorflow_estimator.python.estimator import run_config as _run_config
from tensorflow_estimator.python.estimator import training as _training
from tensorflow_estimator.python.estimator.export import export as _export
from tensorflow_estimator.python.estimator.export import export_output as _export_output

# ---- What programs import from us -------------------------------------------------------------

Estimator = _estimator.Estimator
"""`estimator_emb.Estimator`; every kind of estimator is one."""

VocabInfo = _estimator.VocabInfo
"""`estimator_emb.VocabInfo`."""

WarmStartSettings = _estimator.WarmStartSettings
"""`estimator_emb.WarmStartSettings`."""

EstimatorSpec = _model_fn.EstimatorSpec
"""`estimator_emb.EstimatorSpec`: what a model_fn returns."""

ModeKeys = _mode_keys.ModeKeys
"""`estimator_emb.ModeKeys`: what a model_fn is called for."""

Exporter = _exporter.Exporter
"""`estimator_emb.Exporter`."""

BestExporter = _exporter.BestExporter
"""`estimator_emb.BestExporter`."""

FinalExporter = _exporter.FinalExporter
"""`estimator_emb.FinalExporter`."""

LatestExporter = _exporter.LatestExporter
"""`estimator_emb.LatestExporter`."""

TrainSpec = _training.TrainSpec
"""`estimator_emb.TrainSpec`."""

EvalSpec = _training.EvalSpec
"""`estimator_emb.EvalSpec`."""

ServingInputReceiver = _export.ServingInputReceiver
"""`estimator_emb.export.ServingInputReceiver`."""

TensorServingInputReceiver = _export.TensorServingInputReceiver
"""`estimator_emb.export.TensorServingInputReceiver`."""

build_parsing_serving_input_receiver_fn = _export.build_parsing_serving_input_receiver_fn
"""`estimator_emb.export.build_parsing_serving_input_receiver_fn`."""

build_raw_serving_input_receiver_fn = _export.build_raw_serving_input_receiver_fn
"""`estimator_emb.export.build_raw_serving_input_receiver_fn`."""

ExportOutput = _export_output.ExportOutput
"""`estimator_emb.export.ExportOutput`; an activation may stand in one as it is."""

ClassificationOutput = _export_output.ClassificationOutput
"""`estimator_emb.export.ClassificationOutput`."""

EvalOutput = _export_output.EvalOutput
"""`estimator_emb.export.EvalOutput`."""

PredictOutput = _export_output.PredictOutput
"""`estimator_emb.export.PredictOutput`."""

RegressionOutput = _export_output.RegressionOutput
"""`estimator_emb.export.RegressionOutput`."""

# ---- What only we use -------------------------------------------------------------------------

LocalRunConfig = _run_config.RunConfig
"""`tf.estimator.RunConfig`, of estimators other than TPUEstimator."""

AnyTPUEstimatorSpec = _model_fn._TPUEstimatorSpec
"""Of which a `TPUEstimatorSpec` is a kind, whoever has replaced that class."""

LOSS_METRIC_KEY = _model_fn.LOSS_METRIC_KEY
"""The name of the loss in summaries."""

stock_train_and_evaluate = _training.train_and_evaluate
"""What `estimator_emb.train_and_evaluate` does where there is no cluster."""

TrainingExecutor = _training._TrainingExecutor
"""Runs `train_and_evaluate`; ours ends a cluster, and `estimator-emb check` takes its place."""

step_of_latest_checkpoint = _estimator._load_global_step_from_checkpoint_dir
"""The step at which a model_dir stands, by which Estimators tell whether max_steps is reached."""
