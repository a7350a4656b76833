"""What is only text: names of TensorFlow 1 and of TPU slices, and where they are today."""
