# SPDX-License-Identifier: Apache-2.0
"""Checks for mistakes of a program, made before they cost a training."""
