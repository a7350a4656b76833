"""The checkpoints of a model directory: which are whole, which fit a program, and their saver."""
