# SPDX-License-Identifier: Apache-2.0
"""What trains the embedding tables: the host engine, on CPU, GPU and parameter servers."""
