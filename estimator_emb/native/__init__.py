"""Kernels over lists of tables, built on first use if the machine has a C++ compiler.

They compute the same as `engine.lookup` and `engine.update`, in a single op each. If they cannot be
built or used, TensorFlow's ops are used instead, and the log says so.
"""
