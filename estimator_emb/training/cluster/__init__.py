# SPDX-License-Identifier: Apache-2.0
"""How the processes of a cluster wait for each other, and end together."""
