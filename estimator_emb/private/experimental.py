# SPDX-License-Identifier: Apache-2.0
"""Names of `tf.estimator.experimental`, which programs import from `estimator_emb.experimental`.

TensorFlow 1 and 2 had most of them alike (KMeans and the logit functions TensorFlow 1 only, those
of RNNs TensorFlow 2 only); TensorFlow from 2.16 on lacks them.
"""

from tensorflow_estimator.python.estimator import early_stopping as _early_stopping
from tensorflow_estimator.python.estimator.canned.dnn import dnn_logit_fn_builder
from tensorflow_estimator.python.estimator.canned.kmeans import KMeansClustering as KMeans
from tensorflow_estimator.python.estimator.canned.linear import LinearSDCA, linear_logit_fn_builder
from tensorflow_estimator.python.estimator.canned.rnn import RNNClassifier, RNNEstimator
from tensorflow_estimator.python.estimator.early_stopping import (
    make_early_stopping_hook,
    read_eval_metrics,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from tensorflow_estimator.python.estimator.export.export import (
    build_raw_supervised_input_receiver_fn,
)
from tensorflow_estimator.python.estimator.hooks.hooks import (
    InMemoryEvaluatorHook,
    make_stop_at_checkpoint_step_hook,
)
from tensorflow_estimator.python.estimator.model_fn import call_logit_fn

StopOnPredicateHook = _early_stopping._StopOnPredicateHook
"""The hook that `make_early_stopping_hook` makes; it calls its `_should_stop_fn`."""

MultiWorkerEarlyStoppingHook = _early_stopping._MultiWorkerEarlyStoppingHook
"""The same under a strategy of several workers."""
