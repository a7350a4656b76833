# SPDX-License-Identifier: Apache-2.0
"""An emulated TPU: one host and N cores in this process."""
