"""The version. setup.cfg and `estimator-emb --version` read it without TensorFlow."""

__version__ = "0.2.0"
