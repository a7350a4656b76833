# SPDX-License-Identifier: Apache-2.0
"""Checks that find mistakes of a program before they cost a training."""
