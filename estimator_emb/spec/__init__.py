# SPDX-License-Identifier: Apache-2.0
"""What a program says: its tables, its features, where it runs, and its place in a cluster."""
