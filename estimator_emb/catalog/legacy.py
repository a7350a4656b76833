"""Modules of tensorflow-estimator that programs import, and the names we replace in them."""

ESTIMATOR = "tensorflow_estimator.python.estimator"
API_V1 = f"{ESTIMATOR}.api._v1.estimator"
API_V2 = f"{ESTIMATOR}.api._v2.estimator"

EMBEDDING = "tpu._tpu_estimator_embedding"
REPLACED = {
    "tpu.tpu_estimator": "EmbeddingConfigSpec TPUEstimator",
    "tpu.tpu_config": "TPUConfig RunConfig",
    "training": "train_and_evaluate",
    EMBEDDING: "EmbeddingConfigSpec",
}
"""Module below `ESTIMATOR` -> its names that estimator_emb replaces.

In `EMBEDDING`, estimator_emb replaces the optimizers too.
"""

FROM_TENSORFLOW = (
    "_tpu_estimator_embedding error_handling tpu_config tpu_context tpu_estimator util"
).split()
"""Modules below `ESTIMATOR`.tpu that were once below tensorflow.python.tpu."""

TREES = (
    "tensorflow-estimator has no boosted trees any more; the package "
    "tensorflow-decision-forests trains such models."
)

TPU_EMBEDDING = "tensorflow.python.tpu.tpu_embedding"
LACKING = (
    "tensorflow.python.distribute.estimator_training",
    "tensorflow.python.tpu.session_support",
    TPU_EMBEDDING,
    "tensorflow.python.tpu.tpu_embedding_gradient",
)
"""Modules that tensorflow-estimator imports and that TensorFlow >= 2.16 no longer has."""
