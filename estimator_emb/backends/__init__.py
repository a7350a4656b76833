# SPDX-License-Identifier: Apache-2.0
"""Where a program runs: four ways, of which `choose` takes one."""
