# SPDX-License-Identifier: Apache-2.0
"""Orders a step so that a program reads variables before the step writes them."""
