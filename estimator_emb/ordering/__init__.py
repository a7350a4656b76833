# SPDX-License-Identifier: Apache-2.0
"""Orders a step: what a program reads of a variable, it reads before the step writes it."""
