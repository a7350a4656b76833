# SPDX-License-Identifier: Apache-2.0
"""Makes `import reference` work in every test and sets up TensorFlow before anything loads it."""

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
