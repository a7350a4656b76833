"""Reads, checks, restores, converts and exports checkpoints."""
