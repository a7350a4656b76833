# SPDX-License-Identifier: Apache-2.0
"""The bytes of checkpoints: their index, their values, and writing them."""
