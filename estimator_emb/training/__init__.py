# SPDX-License-Identifier: Apache-2.0
"""What goes on around the steps: progress, a clean end, and the processes of a cluster."""
