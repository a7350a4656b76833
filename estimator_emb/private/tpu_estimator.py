# SPDX-License-Identifier: Apache-2.0
"""Names of tensorflow-estimator's TPUEstimator.

The public ones are `tf.compat.v1.estimator.tpu.<name>`, which TensorFlow from 2.16 on lacks.
Programs import from `estimator_emb` what is imported here under its own name.
"""

from tensorflow_estimator.python.estimator.tpu import tpu_config as _tpu_config
from tensorflow_estimator.python.estimator.tpu import tpu_context as _tpu_context
from tensorflow_estimator.python.estimator.tpu import tpu_estimator as _tpu_estimator
from tensorflow_estimator.python.estimator.tpu import util as _util
from tensorflow_estimator.python.estimator.tpu.tpu_config import InputPipelineConfig
from tensorflow_estimator.python.estimator.tpu.tpu_context import TPUContext
from tensorflow_estimator.python.estimator.tpu.tpu_estimator import (
    ExportSavedModelApiVersion,
    TPUEstimatorSpec,
)

StockTPUEstimator = _tpu_estimator.TPUEstimator
"""The class that `estimator_emb.TPUEstimator` extends."""

StockRunConfig = _tpu_config.RunConfig
"""The class that `estimator_emb.RunConfig` extends."""

StockTPUConfig = _tpu_config.TPUConfig
"""The class that `estimator_emb.TPUConfig` extends."""

InternalTPUContext = _tpu_context._InternalTPUContext
"""What a TPUEstimator asks about its TPU; ours answer for one that is emulated or described."""

TPUEstimatorReplicaContext = _tpu_context._TPUEstimatorReplicaContext
"""The replica context in which TPUEstimator calls model_fn, which `preflight` sets as well."""

NUM_CORES_TO_COMPUTATION_SHAPE = _tpu_context._NUM_CORES_TO_COMPUTATION_SHAPE
"""The slice of a TPU that has so many cores: the topology of an emulated one."""

# ---- Pieces of a step -------------------------------------------------------------------------

InputPipeline = _tpu_estimator._InputPipeline
"""Checks an input for queues, and for how a TPU is to divide it, where one is emulated."""

Inputs = _tpu_estimator._Inputs
"""Tells features from labels in what an input_fn gave."""

ModelFnWrapper = _tpu_estimator._ModelFnWrapper
"""Calls model_fn as a TPU does, and checks what it returns."""

OutfeedHostCall = _tpu_estimator._OutfeedHostCall
"""Checks a host_call, for `preflight`."""

OutfeedHostCallHook = _tpu_estimator._OutfeedHostCallHook
"""The hook that runs a host_call; told from others by TPUEstimator, which the emulated loop is."""

CapturingContext = _tpu_estimator._CapturingContext
"""Refuses ops of a function that read what a core computes: of scaffold_fn, where emulated."""

CatchInvalidHostcallFunctions = _tpu_estimator.CatchInvalidHostcallFunctions
"""Refuses ops of a host_call that a host cannot run."""

ExamplesPerSecondHook = _tpu_estimator.ExamplesPerSecondHook
"""Logs and summarizes how fast a training is."""

MultiHostDatasetInitializerHook = _util.MultiHostDatasetInitializerHook
"""Initializes datasets when a session begins, before anything reads them."""

TPU_TRAIN_OP = _tpu_estimator._TPU_TRAIN_OP
"""The graph collection of what a session runs to train."""

add_item_to_params = _tpu_estimator._add_item_to_params
"""Sets params['batch_size'] and params['context'], whatever class params is."""

create_or_get_iterations_per_loop = _tpu_estimator._create_or_get_iterations_per_loop
"""The variable that says how many steps the next session call makes."""

increase_eval_step_op = _tpu_estimator._increase_eval_step_op
"""Counts the steps of an evaluation."""

parse_iterations_per_loop = _util.parse_iterations_per_loop
"""Checks the flag --iterations_per_loop: a number, or a time."""
