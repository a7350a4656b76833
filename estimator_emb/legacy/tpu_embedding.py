"""Replaces `tensorflow.python.tpu.tpu_embedding`, removed in TensorFlow 2.16.

Everything here is our own, under its legacy name.
"""

# ruff: noqa: F401 - programs find them here.

from estimator_emb.backends.tpu.embedding import (
    INFERENCE,
    TRAINING,
    DeviceConfig,
    TPUEmbedding,
    VariablesAndOps,
)
from estimator_emb.backends.tpu.enqueue import (
    EnqueueData,
    RaggedEnqueueData,
    get_enqueue_datas_list_from_ragged_tensors_list,
    get_enqueue_datas_list_from_sparse_tensors_list,
)
from estimator_emb.backends.tpu.variables import SLOT_VARIABLE_NAMES, SLOT_VARIABLES
from estimator_emb.optimizers import PARAMETERS, FtrlParameters, OptimizationParameters
from estimator_emb.spec.config import FeatureConfig, TableConfig

_OptimizationParameters = OptimizationParameters
FtrlSlotVariable = SLOT_VARIABLES[FtrlParameters]
globals().update(
    {
        one.__name__: one
        for one in (*PARAMETERS, *SLOT_VARIABLES.values(), *SLOT_VARIABLE_NAMES.values())
    }
)
