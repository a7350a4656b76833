"""Writes checkpoints with another order of rows, or in the formats of other programs."""
