"""The TF2 vocabulary, and the way to TensorFlow 2's `tf.tpu.experimental.embedding`.

The five optimizers train wherever the legacy optimizers do. An `EmbeddingConfigSpec` and its tables
accept them as `optimization_parameters`, and also TensorFlow's objects of the same names.
`TableConfig`, `FeatureConfig` and `QuantizationConfig` are TensorFlow's own classes.
`to_tensorflow` translates a whole spec to these classes, for `TPUEmbedding`.
`checkpoint_to_tensorflow` writes a program's tables and slots for it, and
`checkpoint_from_tensorflow` reads them back.
"""

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from estimator_emb.catalog import extras
from estimator_emb.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam

if TYPE_CHECKING:
    from estimator_emb.embedding.checkpoints import (
        Moved,
        checkpoint_from_tensorflow,
        checkpoint_to_tensorflow,
    )
    from estimator_emb.embedding.specs import Loss, SpecTranslation, to_tensorflow

__all__ = [
    "Adagrad",
    "AdagradMomentum",
    "Adam",
    "FTRL",
    "Loss",
    "Moved",
    "SGD",
    "SpecTranslation",
    "checkpoint_from_tensorflow",
    "checkpoint_to_tensorflow",
    "to_tensorflow",
]
TableConfig = tf.tpu.experimental.embedding.TableConfig
FeatureConfig = tf.tpu.experimental.embedding.FeatureConfig
QuantizationConfig = tf.tpu.experimental.embedding.QuantizationConfig

_OF_FORMATS = {
    "Loss": "specs",
    "Moved": "checkpoints",
    "SpecTranslation": "specs",
    "checkpoint_from_tensorflow": "checkpoints",
    "checkpoint_to_tensorflow": "checkpoints",
    "to_tensorflow": "specs",
}
"""Public name -> its module in the extra 'formats'."""


def __getattr__(name: str) -> Any:
    if name not in _OF_FORMATS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(extras.load("formats", f"embedding.{_OF_FORMATS[name]}"), name)
