"""Names of tensorflow-estimator, except its TPUEstimator.

Most are public as `tf.estimator.<name>` before TensorFlow 2.16. Names that are imported here
unchanged are available to programs in `estimator_emb` or `estimator_emb.experimental`. Most of them
were in both TensorFlow 1 and 2. KMeans and the logit functions were in TensorFlow 1 only, and the
RNN names were in TensorFlow 2 only.
"""

from tensorflow_estimator.python.estimator import estimator as _estimator
from tensorflow_estimator.python.estimator import model_fn as _model_fn
from tensorflow_estimator.python.estimator import run_config as _run_config
from tensorflow_estimator.python.estimator import training as _training
from tensorflow_estimator.python.estimator.canned import head as _canned_head
from tensorflow_estimator.python.estimator.canned import optimizers as _canned_optimizers
from tensorflow_estimator.python.estimator.canned.dnn import dnn_logit_fn_builder
from tensorflow_estimator.python.estimator.canned.kmeans import KMeansClustering as KMeans
from tensorflow_estimator.python.estimator.canned.linear import LinearSDCA, linear_logit_fn_builder
from tensorflow_estimator.python.estimator.canned.rnn import RNNClassifier, RNNEstimator
from tensorflow_estimator.python.estimator.early_stopping import (
    make_early_stopping_hook,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from tensorflow_estimator.python.estimator.estimator import Estimator, VocabInfo, WarmStartSettings
from tensorflow_estimator.python.estimator.export.export import (
    ServingInputReceiver,
    TensorServingInputReceiver,
    build_parsing_serving_input_receiver_fn,
    build_raw_serving_input_receiver_fn,
    build_raw_supervised_input_receiver_fn,
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
from tensorflow_estimator.python.estimator.head import base_head as _base_head
from tensorflow_estimator.python.estimator.hooks.hooks import (
    InMemoryEvaluatorHook,
    make_stop_at_checkpoint_step_hook,
)
from tensorflow_estimator.python.estimator.inputs.queues import (
    feeding_functions as _feeding_functions,
)
from tensorflow_estimator.python.estimator.mode_keys import ModeKeys
from tensorflow_estimator.python.estimator.model_fn import EstimatorSpec, call_logit_fn
from tensorflow_estimator.python.estimator.training import EvalSpec, TrainSpec

LocalRunConfig = _run_config.RunConfig
# Feeds a DataFrame through a queue. Text columns must have the dtype object.
feeding_functions = _feeding_functions
# Canned estimators and heads receive optimizers here. They must be legacy Keras optimizers.
canned_optimizers = _canned_optimizers
base_head = _base_head
# Base class of every `TPUEstimatorSpec`, including replacements of that class.
AnyTPUEstimatorSpec = _model_fn._TPUEstimatorSpec
LOSS_METRIC_KEY = _model_fn.LOSS_METRIC_KEY
stock_train_and_evaluate = _training.train_and_evaluate
# Runs `train_and_evaluate`. Our subclass ends a cluster. `estimator-emb check` replaces its `run`.
TrainingExecutor = _training._TrainingExecutor
step_of_latest_checkpoint = _estimator._load_global_step_from_checkpoint_dir
