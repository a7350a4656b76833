# SPDX-License-Identifier: Apache-2.0
"""One training step of the tables of a host."""
