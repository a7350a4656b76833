# SPDX-License-Identifier: Apache-2.0
"""A TPU whose embedding hardware holds the tables."""
