# SPDX-License-Identifier: Apache-2.0
"""What a program specifies: tables, features, where it runs, and its place in a cluster."""
