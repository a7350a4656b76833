"""TPUEstimator and EmbeddingConfigSpec for today's TensorFlow, also without a TPU.

Names are as in `tf.estimator`, `tf.estimator.tpu` and `tf.compat.v1.tpu.experimental`.
"""

# ruff: noqa: E402, I001 - tensorflow-estimator can be imported only after this.
from estimator_emb import compat

compat.prepare(tpu_embedding="estimator_emb.legacy.tpu_embedding")

# Tables and their optimizers.
from estimator_emb.spec.config import EmbeddingConfigSpec, FeatureConfig, TableConfig
from estimator_emb.optimizers import PARAMETERS as _OPTIMIZERS
from estimator_emb.optimizers._classes import *  # noqa: F403

# The estimator.
from estimator_emb.spec.options import RunConfig, TPUConfig
from estimator_emb.estimator import TPUEstimator
from estimator_emb.compat.internals.tpu_estimator import (
    ExportSavedModelApiVersion,
    InputPipelineConfig,
    TPUContext,
    TPUEstimatorSpec,
)

# Other names of `tf.estimator` that training programs use.
from estimator_emb import errors, experimental, export
from estimator_emb.compat.internals.estimators import (
    BestExporter,
    Estimator,
    EstimatorSpec,
    EvalSpec,
    Exporter,
    FinalExporter,
    LatestExporter,
    ModeKeys,
    TrainSpec,
    VocabInfo,
    WarmStartSettings,
)
from estimator_emb.checkpoints.restoring.vocabularies import vocabulary_warm_start
from estimator_emb.backends.cluster.training import train_and_evaluate
from estimator_emb.reporting.progress import ProgressHook

# For programs that run unchanged.
from estimator_emb.legacy.install import install, uninstall
from estimator_emb.version import __version__ as __version__

__all__ = [
    "BestExporter",
    "EmbeddingConfigSpec",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "ExportSavedModelApiVersion",
    "Exporter",
    "FeatureConfig",
    "FinalExporter",
    "InputPipelineConfig",
    "LatestExporter",
    "ModeKeys",
    "ProgressHook",
    "RunConfig",
    "TPUConfig",
    "TPUContext",
    "TPUEstimator",
    "TPUEstimatorSpec",
    "TableConfig",
    "TrainSpec",
    "VocabInfo",
    "WarmStartSettings",
    "errors",
    "experimental",
    "export",
    "install",
    "train_and_evaluate",
    "uninstall",
    "vocabulary_warm_start",
]
__all__ += [one.__name__ for one in _OPTIMIZERS]
