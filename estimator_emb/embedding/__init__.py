# SPDX-License-Identifier: Apache-2.0
"""The TF2 vocabulary: what `tf.tpu.experimental.embedding` calls tables, features and optimizers.

The five optimizers train wherever the legacy ones do: an `EmbeddingConfigSpec` and its tables take
them as `optimization_parameters`, and TensorFlow's own of the same name too. Tables and features
say the same as the legacy `TableConfig` and `FeatureConfig`; `to_legacy` and `from_legacy`
translate, `from_tensorflow` makes TensorFlow's own objects ours, and `to_tensorflow` hands ours to
`tf.tpu.experimental.embedding.TPUEmbedding` and `TPUEmbeddingV2`.
"""

from estimator_emb.embedding.configs import FeatureConfig, QuantizationConfig, TableConfig
from estimator_emb.embedding.translation import (
    from_legacy,
    from_spec,
    from_tensorflow,
    to_legacy,
    to_tensorflow,
)
from estimator_emb.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam

__all__ = [
    "Adagrad",
    "AdagradMomentum",
    "Adam",
    "FTRL",
    "FeatureConfig",
    "QuantizationConfig",
    "SGD",
    "TableConfig",
    "from_legacy",
    "from_spec",
    "from_tensorflow",
    "to_legacy",
    "to_tensorflow",
]
