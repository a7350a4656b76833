"""Tables of names, read without TensorFlow: TensorFlow 1's names, TPU slices, export formats."""
