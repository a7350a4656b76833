"""Reads the contents of a checkpoint without the program that wrote it."""
