"""The TF2 vocabulary: tables, features and optimizers as in `tf.tpu.experimental.embedding`.

The five optimizers train wherever the legacy optimizers do. An `EmbeddingConfigSpec` and its tables
accept them as `optimization_parameters`, and also TensorFlow's objects of the same names.
`TableConfig` and `FeatureConfig` describe the same tables and features as the legacy classes of
these names. `to_legacy` and `from_legacy` translate between the two. `from_tensorflow` translates
TensorFlow's objects to ours. `to_tensorflow` translates our objects, or a whole spec, for
`TPUEmbedding` and `TPUEmbeddingV2` of `tf.tpu.experimental.embedding`. `checkpoint_to_tensorflow`
writes a program's tables and slots for them, and `checkpoint_from_tensorflow` reads them back.
"""

from typing import TYPE_CHECKING, Any

from estimator_emb.catalog import extras
from estimator_emb.embedding.configs import FeatureConfig, QuantizationConfig, TableConfig
from estimator_emb.embedding.translation import (
    from_legacy,
    from_spec,
    from_tensorflow,
    to_legacy,
)
from estimator_emb.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam

if TYPE_CHECKING:
    from estimator_emb.embedding.checkpoints import (
        Moved,
        checkpoint_from_tensorflow,
        checkpoint_to_tensorflow,
    )
    from estimator_emb.embedding.sparse_core import sparse_core_config
    from estimator_emb.embedding.specs import Loss, SpecTranslation, to_tensorflow

__all__ = [
    "Adagrad",
    "AdagradMomentum",
    "Adam",
    "FTRL",
    "FeatureConfig",
    "Loss",
    "Moved",
    "QuantizationConfig",
    "SGD",
    "SpecTranslation",
    "TableConfig",
    "checkpoint_from_tensorflow",
    "checkpoint_to_tensorflow",
    "from_legacy",
    "from_spec",
    "from_tensorflow",
    "sparse_core_config",
    "to_legacy",
    "to_tensorflow",
]
_OF_FORMATS = {
    "Loss": "specs",
    "Moved": "checkpoints",
    "SpecTranslation": "specs",
    "checkpoint_from_tensorflow": "checkpoints",
    "checkpoint_to_tensorflow": "checkpoints",
    "sparse_core_config": "sparse_core",
    "to_tensorflow": "specs",
}
"""Public name -> its module in the extra 'formats'."""


def __getattr__(name: str) -> Any:
    if name not in _OF_FORMATS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(extras.load("formats", f"embedding.{_OF_FORMATS[name]}"), name)
