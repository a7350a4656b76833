"""Rejects TPUs that cannot run TPUEstimator."""

from estimator_emb.catalog.generations import PJRT

NO_ESTIMATOR = (
    "no TPUEstimator runs by TensorFlow on TPUs v5e, v5p and v6e: their only runtime is PJRT, and "
    "TPUEstimator stands on the infeed and outfeed of TensorFlow's older one, without which "
    "TensorFlow says 'No TPU platform registered'. Ways round: run the model there by jax and "
    "train the tables on the host, with TPUConfig(device='pjrt'), which nobody has tried on a TPU; "
    "or train on the host, without the TPU, with TPUConfig(device='emulate'); or rewrite the "
    "program for TensorFlow 2, where TPUEmbeddingV2 of tf.tpu.experimental.embedding drives "
    "SparseCore: estimator_emb.embedding.to_tensorflow translates tables and features."
)
"""Why TensorFlow cannot run a TPUEstimator on the generations of `PJRT`, and what to do instead."""


def check_runtime(generation: str | None) -> None:
    """Raises ValueError for a TPU generation that cannot run TPUEstimator."""
    if generation in PJRT:
        raise ValueError(f"TPUConfig: tpu_generation is {generation!r}, and {NO_ESTIMATOR}")
