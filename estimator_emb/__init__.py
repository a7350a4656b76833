# SPDX-License-Identifier: Apache-2.0
"""TPUEstimator and EmbeddingConfigSpec for today's TensorFlow, on CPU, GPU and TPU."""

from estimator_emb import compat

compat.prepare()

from tensorflow_estimator.python.estimator.estimator import (  # noqa: E402
    Estimator,
    VocabInfo,
    WarmStartSettings,
)
from tensorflow_estimator.python.estimator.export.export import (  # noqa: E402
    ServingInputReceiver,
    TensorServingInputReceiver,
    build_parsing_serving_input_receiver_fn,
    build_raw_serving_input_receiver_fn,
)
from tensorflow_estimator.python.estimator.exporter import (  # noqa: E402
    BestExporter,
    Exporter,
    FinalExporter,
    LatestExporter,
)
from tensorflow_estimator.python.estimator.mode_keys import ModeKeys  # noqa: E402
from tensorflow_estimator.python.estimator.model_fn import EstimatorSpec  # noqa: E402
from tensorflow_estimator.python.estimator.tpu.tpu_config import (  # noqa: E402
    InputPipelineConfig,
    RunConfig,
)
from tensorflow_estimator.python.estimator.tpu.tpu_context import TPUContext  # noqa: E402
from tensorflow_estimator.python.estimator.tpu.tpu_estimator import (  # noqa: E402
    ExportSavedModelApiVersion,
    TPUEstimatorSpec,
)
from tensorflow_estimator.python.estimator.training import (  # noqa: E402
    EvalSpec,
    TrainSpec,
    train_and_evaluate,
)

from estimator_emb.config import EmbeddingConfigSpec, FeatureConfig, TableConfig  # noqa: E402
from estimator_emb.estimator import TPUConfig, TPUEstimator  # noqa: E402
from estimator_emb.optimizers import (  # noqa: E402
    AdagradParameters,
    AdamParameters,
    StochasticGradientDescentParameters,
)
