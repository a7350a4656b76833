# SPDX-License-Identifier: Apache-2.0
"""The command `estimator-emb`.

The installed script, bin/estimator-emb, does not run estimator_emb/__init__.py, so what these
modules import at their top decides whether a help text waits for TensorFlow.
"""
