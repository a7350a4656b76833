# SPDX-License-Identifier: Apache-2.0
"""Compiles the lookup and the update of a spec's tables for SparseCore, ahead of time.

`layout.py` stacks and pads the tables, `rule.py` turns the rule of their optimizer into StableHLO,
`module.py` writes the programs that libtpu compiles, `compiling.py` asks libtpu, and `results.py`
has its answers. Nothing here trains.
"""
