# SPDX-License-Identifier: Apache-2.0
"""The command `estimator-emb` as far as it goes without TensorFlow: its help, and what is wrong.

A package of its own, because `import estimator_emb` imports TensorFlow.
"""
