# SPDX-License-Identifier: Apache-2.0
"""MDL Adagrad light: a name without a rule."""

from typing import Any

from estimator_emb.optimizers._parameters import OptimizationParameters


class MDLAdagradLightParameters(OptimizationParameters):
    """Not available: what this optimizer of the TPU hardware computes was never published.

    Raises:
      NotImplementedError: always, for any arguments.

    Source: `MDLAdagradLightParameters` of optimization_parameters.proto, TF 2.15.1: names of
    hyper-parameters, no formula. TensorFlow has no Python class for it either.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        raise NotImplementedError(
            "MDLAdagradLightParameters: the update rule of MDL Adagrad light was never published, "
            "so it cannot be reproduced. Choose another optimizer."
        )
