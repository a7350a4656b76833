"""Saves a model directory's checkpoints, and restores them after checks."""
