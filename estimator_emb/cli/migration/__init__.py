# SPDX-License-Identifier: Apache-2.0
"""The source rewrite of `estimator-emb migrate`, which needs LibCST and no TensorFlow."""
