"""What lets programs of TensorFlow 1 run unchanged."""
