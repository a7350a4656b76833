# SPDX-License-Identifier: Apache-2.0
"""What surrounds the steps of a training: progress, signals, and the processes of a cluster."""
