# SPDX-License-Identifier: Apache-2.0
"""Replaces `tensorflow.python.tpu.tpu_embedding`, which TensorFlow >= 2.16 lacks.

Everything here is our own under its legacy name.
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
from estimator_emb.optimizers import (
    AdagradMomentumParameters,
    AdagradParameters,
    AdamParameters,
    FrequencyEstimatorParameters,
    FtrlParameters,
    MomentumParameters,
    OptimizationParameters,
    ProximalAdagradParameters,
    ProximalYogiParameters,
    RMSPropParameters,
    StochasticGradientDescentParameters,
)
from estimator_emb.spec.config import FeatureConfig, TableConfig

_OptimizationParameters = OptimizationParameters

AdagradMomentumSlotVariableNames = SLOT_VARIABLE_NAMES[AdagradMomentumParameters]
AdagradSlotVariableNames = SLOT_VARIABLE_NAMES[AdagradParameters]
AdamSlotVariableNames = SLOT_VARIABLE_NAMES[AdamParameters]
FrequencyEstimatorSlotVariableNames = SLOT_VARIABLE_NAMES[FrequencyEstimatorParameters]
FtrlSlotVariableNames = SLOT_VARIABLE_NAMES[FtrlParameters]
MomentumSlotVariableNames = SLOT_VARIABLE_NAMES[MomentumParameters]
ProximalAdagradSlotVariableNames = SLOT_VARIABLE_NAMES[ProximalAdagradParameters]
ProximalYogiSlotVariableNames = SLOT_VARIABLE_NAMES[ProximalYogiParameters]
RMSPropSlotVariableNames = SLOT_VARIABLE_NAMES[RMSPropParameters]

AdagradMomentumSlotVariables = SLOT_VARIABLES[AdagradMomentumParameters]
AdagradSlotVariables = SLOT_VARIABLES[AdagradParameters]
AdamSlotVariables = SLOT_VARIABLES[AdamParameters]
FrequencyEstimatorSlotVariables = SLOT_VARIABLES[FrequencyEstimatorParameters]
FtrlSlotVariable = SLOT_VARIABLES[FtrlParameters]
MomentumSlotVariables = SLOT_VARIABLES[MomentumParameters]
ProximalAdagradSlotVariables = SLOT_VARIABLES[ProximalAdagradParameters]
ProximalYogiSlotVariables = SLOT_VARIABLES[ProximalYogiParameters]
RMSPropSlotVariables = SLOT_VARIABLES[RMSPropParameters]
