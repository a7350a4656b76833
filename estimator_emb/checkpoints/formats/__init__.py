"""What checkpoints are written as: other orders of rows, and files of other programs."""
