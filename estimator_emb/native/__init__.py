# SPDX-License-Identifier: Apache-2.0
"""Kernels over lists of tables, built on first use where the machine has a C++ compiler.

They compute what `tables.lookup` and `tables.update` compute with TensorFlow's own ops, in one op
each. Nothing needs them: where they cannot be had or do not apply, a line in the log says so.
"""
