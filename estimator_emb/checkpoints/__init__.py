# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: their bytes, what they hold, restoring them, and writing them as other files."""
