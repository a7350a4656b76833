"""Reads and writes the files of checkpoints: the index and the values."""
