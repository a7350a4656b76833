"""Runs TensorFlow 1 programs unchanged."""
