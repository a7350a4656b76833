# SPDX-License-Identifier: Apache-2.0
"""Makes `import reference` and `import harness` work in every test, and keeps TensorFlow quiet."""

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import estimator_emb  # noqa: E402, F401  (binds Keras 2 before any test imports TensorFlow)
