# SPDX-License-Identifier: Apache-2.0
"""What trains the embedding tables: the host, or the embedding hardware of a TPU."""
