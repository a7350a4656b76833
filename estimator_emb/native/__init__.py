"""Native kernels. One op looks up all tables of a step, and another op updates them.

They compute the same as `engine.lookup` and `engine.update`. They are built on first use if the
machine has a C++ compiler. If they cannot be built or used, TensorFlow's ops are used instead, and
the log gives the reason.
"""
