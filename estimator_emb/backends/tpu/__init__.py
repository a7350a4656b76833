"""Runs programs on a TPU that holds the tables in its embedding hardware."""
