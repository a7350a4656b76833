# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint holds, read without a program."""
