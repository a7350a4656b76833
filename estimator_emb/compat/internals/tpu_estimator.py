"""Names of tensorflow-estimator's TPUEstimator.

Before TensorFlow 2.16, the public names are `tf.compat.v1.estimator.tpu.<name>`. Names that are
imported here unchanged are available to programs in `estimator_emb`.
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
StockRunConfig = _tpu_config.RunConfig
StockTPUConfig = _tpu_config.TPUConfig
# A TPUEstimator asks these about its TPU. Ours answer for an emulated or a described TPU.
InternalTPUContext = _tpu_context._InternalTPUContext
TPUEstimatorReplicaContext = _tpu_context._TPUEstimatorReplicaContext
NUM_CORES_TO_COMPUTATION_SHAPE = _tpu_context._NUM_CORES_TO_COMPUTATION_SHAPE
InputPipeline = _tpu_estimator._InputPipeline
Inputs = _tpu_estimator._Inputs
ModelFnWrapper = _tpu_estimator._ModelFnWrapper
OutfeedHostCall = _tpu_estimator._OutfeedHostCall
# The hook of a host_call. TPUEstimator recognizes its class, so the emulated loop derives from it.
OutfeedHostCallHook = _tpu_estimator._OutfeedHostCallHook
CapturingContext = _tpu_estimator._CapturingContext
CatchInvalidHostcallFunctions = _tpu_estimator.CatchInvalidHostcallFunctions
ExamplesPerSecondHook = _tpu_estimator.ExamplesPerSecondHook
MultiHostDatasetInitializerHook = _util.MultiHostDatasetInitializerHook
add_item_to_params = _tpu_estimator._add_item_to_params
create_or_get_iterations_per_loop = _tpu_estimator._create_or_get_iterations_per_loop
increase_eval_step_op = _tpu_estimator._increase_eval_step_op
