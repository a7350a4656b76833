# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a model directory: which are whole, whether they fit, how they are written."""
