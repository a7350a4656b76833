# SPDX-License-Identifier: Apache-2.0
"""What lets programs of TensorFlow 1 run unchanged."""
