# SPDX-License-Identifier: Apache-2.0
"""What an embedding table is on the host: its input, its lookup, its storage and its update."""
