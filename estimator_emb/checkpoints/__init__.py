"""Checkpoints: their bytes, what they hold, restoring them, and writing them as other files."""
