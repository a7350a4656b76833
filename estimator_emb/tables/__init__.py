# SPDX-License-Identifier: Apache-2.0
"""Creates, names, places and stores the embedding tables of the host."""
