# SPDX-License-Identifier: Apache-2.0
"""Programs that `compiler` starts by their file; each imports TensorFlow or jax, never both."""
