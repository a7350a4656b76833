# SPDX-License-Identifier: Apache-2.0
"""The order of a step: what a program reads of a variable, it reads before the step writes it."""
