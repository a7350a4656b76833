# SPDX-License-Identifier: Apache-2.0
"""Names of `tf.estimator.experimental`, which programs import from `estimator_emb.experimental`.

TensorFlow 1 and TensorFlow 2 had most of them alike; TensorFlow from 2.16 on lacks them.
"""

from tensorflow_estimator.python.estimator import early_stopping as _early_stopping
from tensorflow_estimator.python.estimator import model_fn as _model_fn
from tensorflow_estimator.python.estimator.canned import dnn as _dnn
from tensorflow_estimator.python.estimator.canned import kmeans as _kmeans
from tensorflow_estimator.python.estimator.canned import linear as _linear
from tensorflow_estimator.python.estimator.canned import rnn as _rnn
from tensorflow_estimator.python.estimator.export import export as _export
from tensorflow_estimator.python.estimator.hooks import hooks as _hooks

InMemoryEvaluatorHook = _hooks.InMemoryEvaluatorHook
"""`estimator_emb.experimental.InMemoryEvaluatorHook`."""

KMeans = _kmeans.KMeansClustering
"""`estimator_emb.experimental.KMeans`, of TensorFlow 1 only."""

LinearSDCA = _linear.LinearSDCA
"""`estimator_emb.experimental.LinearSDCA`."""

RNNClassifier = _rnn.RNNClassifier
"""`estimator_emb.experimental.RNNClassifier`, of TensorFlow 2 only."""

RNNEstimator = _rnn.RNNEstimator
"""`estimator_emb.experimental.RNNEstimator`, of TensorFlow 2 only."""

build_raw_supervised_input_receiver_fn = _export.build_raw_supervised_input_receiver_fn
"""`estimator_emb.experimental.build_raw_supervised_input_receiver_fn`."""

call_logit_fn = _model_fn.call_logit_fn
"""`estimator_emb.experimental.call_logit_fn`."""

dnn_logit_fn_builder = _dnn.dnn_logit_fn_builder
"""`estimator_emb.experimental.dnn_logit_fn_builder`, of TensorFlow 1 only."""

linear_logit_fn_builder = _linear.linear_logit_fn_builder
"""`estimator_emb.experimental.linear_logit_fn_builder`, of TensorFlow 1 only."""

make_early_stopping_hook = _early_stopping.make_early_stopping_hook
"""`estimator_emb.experimental.make_early_stopping_hook`."""

make_stop_at_checkpoint_step_hook = _hooks.make_stop_at_checkpoint_step_hook
"""`estimator_emb.experimental.make_stop_at_checkpoint_step_hook`."""

stop_if_higher_hook = _early_stopping.stop_if_higher_hook
"""`estimator_emb.experimental.stop_if_higher_hook`."""

stop_if_lower_hook = _early_stopping.stop_if_lower_hook
"""`estimator_emb.experimental.stop_if_lower_hook`."""

stop_if_no_decrease_hook = _early_stopping.stop_if_no_decrease_hook
"""`estimator_emb.experimental.stop_if_no_decrease_hook`."""

stop_if_no_increase_hook = _early_stopping.stop_if_no_increase_hook
"""`estimator_emb.experimental.stop_if_no_increase_hook`."""
