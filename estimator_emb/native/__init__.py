"""Kernels over lists of tables, built on first use if the machine has a C++ compiler.

They compute what `engine.lookup` and `engine.update` compute with TensorFlow's own ops, in one op
each. If they cannot be built or used, the log says so and TensorFlow's ops are used.
"""
