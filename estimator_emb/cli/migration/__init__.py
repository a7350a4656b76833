"""Rewrites the source of programs for `estimator-emb migrate`. Needs LibCST, not TensorFlow."""
