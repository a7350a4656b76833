# SPDX-License-Identifier: Apache-2.0
"""Stands for `tensorflow.python.tpu.tpu_embedding`, which TensorFlow >= 2.16 lacks.

tensorflow_estimator/python/estimator/tpu/_tpu_estimator_embedding.py takes from it the config and
parameter classes, which are our own under their legacy names, and the names of the slot variables
that it gives to each optimizer.
"""

import collections

from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import TPUEmbeddingConfiguration

from estimator_emb.config import FeatureConfig, TableConfig
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

TRAINING = TPUEmbeddingConfiguration.TRAINING
INFERENCE = TPUEmbeddingConfiguration.INFERENCE

_OptimizationParameters = OptimizationParameters

AdagradSlotVariableNames = collections.namedtuple("AdagradSlotVariableNames", ["accumulator"])
AdagradMomentumSlotVariableNames = collections.namedtuple(
    "AdagradMomentumSlotVariableNames", ["accumulator", "momenta"]
)
AdamSlotVariableNames = collections.namedtuple("AdamSlotVariableNames", ["m", "v"])
FtrlSlotVariableNames = collections.namedtuple("FtrlSlotVariableNames", ["accumulator", "linear"])
MomentumSlotVariableNames = collections.namedtuple("MomentumSlotVariableNames", ["momenta"])
RMSPropSlotVariableNames = collections.namedtuple("RMSPropSlotVariableNames", ["ms", "mom"])
ProximalAdagradSlotVariableNames = collections.namedtuple(
    "ProximalAdagradSlotVariableNames", ["accumulator"]
)
ProximalYogiSlotVariableNames = collections.namedtuple("ProximalYogiSlotVariableNames", ["v", "m"])
FrequencyEstimatorSlotVariableNames = collections.namedtuple(
    "FrequencyEstimatorSlotVariableNames", ["last_hit_step"]
)


class TPUEmbedding:
    """The driver of the embedding hardware. Not available on TensorFlow >= 2.16 yet."""

    def __init__(self, *args: object, **kwargs: object):
        raise NotImplementedError(
            "The TPU embedding hardware is driven on TensorFlow 2.15 only. On later versions train "
            "on the host: set the environment variable ESTIMATOR_EMB_DEVICE=host."
        )


__all__ = [
    "INFERENCE",
    "TRAINING",
    "AdagradMomentumParameters",
    "AdagradMomentumSlotVariableNames",
    "AdagradParameters",
    "AdagradSlotVariableNames",
    "AdamParameters",
    "AdamSlotVariableNames",
    "FeatureConfig",
    "FrequencyEstimatorParameters",
    "FrequencyEstimatorSlotVariableNames",
    "FtrlParameters",
    "FtrlSlotVariableNames",
    "MomentumParameters",
    "MomentumSlotVariableNames",
    "ProximalAdagradParameters",
    "ProximalAdagradSlotVariableNames",
    "ProximalYogiParameters",
    "ProximalYogiSlotVariableNames",
    "RMSPropParameters",
    "RMSPropSlotVariableNames",
    "StochasticGradientDescentParameters",
    "TPUEmbedding",
    "TableConfig",
]
