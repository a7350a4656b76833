# SPDX-License-Identifier: Apache-2.0
"""What a program may have got wrong, each found before it costs a training."""
