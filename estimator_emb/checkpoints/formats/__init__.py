# SPDX-License-Identifier: Apache-2.0
"""What checkpoints are written as: other orders of rows, and files of other programs."""
