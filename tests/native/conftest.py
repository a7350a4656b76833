# SPDX-License-Identifier: Apache-2.0
"""Makes `import host_engine` work in the tests of this directory."""

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
