"""The version, in a file that setup.cfg and `estimator-emb --version` read without TensorFlow."""

__version__ = "0.2.0"
