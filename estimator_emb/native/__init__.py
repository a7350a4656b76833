"""Kernels over lists of tables, built on first use if the machine has a C++ compiler.

They compute what `step.lookup` and `step.update` compute with TensorFlow's own ops, in one op
each. If they cannot be built or used, the log says so and TensorFlow's ops are used.
"""
