# SPDX-License-Identifier: Apache-2.0
"""Compiles the lookup and the update of a spec's tables for SparseCore, ahead of time.

`compiling.compile_tables` does so for each generation that has SparseCores: `layout.py` stacks and
pads the tables, `rule.py` turns the rule of their optimizer into StableHLO, `module.py` writes the
programs that libtpu compiles, and `results.py` has its answers. Nothing here trains.
"""
