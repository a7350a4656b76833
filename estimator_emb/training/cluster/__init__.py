# SPDX-License-Identifier: Apache-2.0
"""How the processes of a cluster end together, and what they say while they wait for others."""
