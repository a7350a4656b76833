"""The source rewrite of `estimator-emb migrate`, which needs LibCST and no TensorFlow."""
